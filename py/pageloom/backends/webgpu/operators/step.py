"""The step buffer of an operator's call: the host writes its header, `prepare_metadata` the rest."""

from __future__ import annotations

import array

from pageloom.attention.paged.check import PagedAttentionShape
from pageloom.backends.webgpu.step_layout import HEADER


def max_tiles(shape: PagedAttentionShape, tile_tokens: int) -> int:
    """Places of query tiles: those of all tokens, and one that each sequence may begin; the tokens of no sequence are
    one sequence more."""
    return shape.num_tokens // tile_tokens + shape.batch_size + 1


def _arrays(shape: PagedAttentionShape, tile_tokens: int) -> dict[str, int]:
    tokens, sequences = shape.num_tokens, shape.batch_size + 1
    return {
        "POSITIONS": tokens,
        "SLOTS": tokens,
        "TOKEN_SEQUENCES": tokens,
        "CUMULATIVE_LENGTHS": sequences + 1,
        "PAST_LENGTHS": sequences,
        "BLOCK_TABLE": sequences * shape.max_blocks_per_sequence,
        "TILES": 3 * max_tiles(shape, tile_tokens),
    }


def longest_array(shape: PagedAttentionShape, tile_tokens: int) -> int:
    """Words of the longest array of the step: threads that fill it."""
    return max(_arrays(shape, tile_tokens).values())


def step_header(shape: PagedAttentionShape, tile_tokens: int) -> tuple[array.array[int], int]:
    """(the header's words, words of the whole step buffer) for calls of this shape."""
    words = dict.fromkeys(HEADER, 0) | {
        "NUM_TOKENS": shape.num_tokens,
        "NUM_SEQUENCES": shape.batch_size + 1,
        "NUM_TILES": max_tiles(shape, tile_tokens),
        "MAX_BLOCKS": shape.max_blocks_per_sequence,
    }
    offset = len(HEADER)
    for name, count in _arrays(shape, tile_tokens).items():
        words[name] = offset
        offset += count
    return array.array("i", [words[name] for name in HEADER]), offset
