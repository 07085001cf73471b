"""The step buffer: everything that changes from one step to the next, in one write.

One array of u32 words: a header of fixed words with counts and offsets (in words), then the arrays behind it, each as
long as this step needs. Shaders therefore take no parameter for a length, and a small step is a small write.
`wgsl/lib/step.wgsl.j2` names the header's words in the same order. With T tokens, B sequences, M blocks in the longest
row of the block table, R wanted rows and A adjustments:

| array | words | content |
|---|---|---|
| TOKEN_IDS | T | id of token t |
| FEED_ROWS | T | i32: -1, or the row of the previous step whose best candidate token t is |
| POSITIONS | T | absolute position of token t |
| SLOTS | T | i32: block id * block_size + offset where K and V of token t go; -1 stores nothing |
| TOKEN_SEQUENCES | T | sequence of token t |
| CUMULATIVE_LENGTHS | B + 1 | prefix sum of the new tokens |
| PAST_LENGTHS | B | tokens already cached |
| BLOCK_TABLE | B * M | i32 rows of physical block ids, -1 where unmapped; M is MAX_BLOCKS |
| TILES | 3 * NUM_TILES | (sequence, first token, number of tokens): query tiles, none across two sequences |
| LOGITS_ROWS | R | token index of each wanted row |
| ADJUSTMENTS | 4 * A | (row, token id, divisor as f32 bits, bias as f32 bits) |
"""

from __future__ import annotations

import array
import itertools
import struct
from dataclasses import dataclass

from pageloom.engine.batch import LogitAdjustment, RunnerLimits, StepBatch

HEADER = (
    "NUM_TOKENS", "NUM_SEQUENCES", "NUM_LOGITS_ROWS", "NUM_TILES", "MAX_BLOCKS", "NUM_ADJUSTMENTS",
    "TOKEN_IDS", "FEED_ROWS", "POSITIONS", "SLOTS", "TOKEN_SEQUENCES", "CUMULATIVE_LENGTHS", "PAST_LENGTHS",
    "BLOCK_TABLE", "TILES", "LOGITS_ROWS", "ADJUSTMENTS",
)  # fmt: skip


def query_tiles(cumulative_sequence_length: tuple[int, ...], tile_tokens: int) -> list[tuple[int, int, int]]:
    """Cut each sequence's new tokens into tiles of at most `tile_tokens`: (sequence, first token, number of tokens)."""
    return [
        (sequence, first, min(tile_tokens, end - first))
        for sequence, (start, end) in enumerate(itertools.pairwise(cumulative_sequence_length))
        for first in range(start, end, tile_tokens)
    ]


@dataclass(frozen=True, slots=True)
class StepLayout:
    """Packs a `StepBatch` into the words of the step buffer for given limits."""

    limits: RunnerLimits
    tile_tokens: int

    @property
    def max_words(self) -> int:
        """Words of the largest step that the limits allow."""
        limits = self.limits
        return (
            len(HEADER)
            + 8 * limits.max_tokens
            + (3 + limits.max_blocks_per_sequence) * limits.max_sequences
            + 1
            + 4 * limits.max_adjustments
        )

    def pack(self, batch: StepBatch) -> array.array[int]:
        """One step as signed 32-bit words, header first."""
        block_size = self.limits.block_size
        max_blocks = max(map(len, batch.block_table))
        positions: list[int] = []
        slots: list[int] = []
        sequences: list[int] = []
        table: list[int] = []
        for sequence, past in enumerate(batch.past_seqlens):
            blocks = batch.block_table[sequence]
            start, end = batch.cumulative_sequence_length[sequence : sequence + 2]
            new_positions = range(past, past + end - start)
            positions.extend(new_positions)
            slots.extend(blocks[p // block_size] * block_size + p % block_size for p in new_positions)
            sequences.extend([sequence] * (end - start))
            table.extend(blocks)
            table.extend([-1] * (max_blocks - len(blocks)))
        tiles = query_tiles(batch.cumulative_sequence_length, self.tile_tokens)
        arrays = {
            "TOKEN_IDS": batch.input_ids,
            "FEED_ROWS": batch.feed_rows,
            "POSITIONS": positions,
            "SLOTS": slots,
            "TOKEN_SEQUENCES": sequences,
            "CUMULATIVE_LENGTHS": batch.cumulative_sequence_length,
            "PAST_LENGTHS": batch.past_seqlens,
            "BLOCK_TABLE": table,
            "TILES": list(itertools.chain.from_iterable(tiles)),
            "LOGITS_ROWS": batch.logits_rows,
            "ADJUSTMENTS": list(itertools.chain.from_iterable(map(_adjustment_words, batch.adjustments))),
        }
        header = {
            "NUM_TOKENS": len(batch.input_ids),
            "NUM_SEQUENCES": len(batch.past_seqlens),
            "NUM_LOGITS_ROWS": len(batch.logits_rows),
            "NUM_TILES": len(tiles),
            "MAX_BLOCKS": max_blocks,
            "NUM_ADJUSTMENTS": len(batch.adjustments),
        }
        offset = len(HEADER)
        for name, values in arrays.items():
            header[name] = offset
            offset += len(values)
        words = array.array("i", [header[name] for name in HEADER])
        for values in arrays.values():
            words.extend(values)
        return words


def _adjustment_words(entry: LogitAdjustment) -> tuple[int, ...]:
    return struct.unpack("<4i", struct.pack("<iiff", entry.row, entry.token_id, entry.divisor, entry.bias))
