"""The rules on what PagedAttention's integer inputs hold, where the host knows them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pageloom.attention.paged.check import PagedAttentionShape
from pageloom.attention.validation import require


def check_lengths(shape: PagedAttentionShape, cumulative: Sequence[int], past_seqlens: Sequence[int]) -> None:
    """Raise `InvalidArgument` for lengths that are no prefix sum of the tokens or that pass a sequence's capacity.

    A sequence without new tokens may be exactly full; one with new tokens must have room for all of them, and a row of
    cos_cache for each where there is rotary.
    """
    name = "cumulative_sequence_length"
    require(cumulative[0] == 0, f"{name} starts with {cumulative[0]}; 0 is expected", name)
    require(
        cumulative[-1] == shape.num_tokens,
        f"{name} ends with {cumulative[-1]}; the {shape.num_tokens} tokens of query are expected",
        name,
    )
    for sequence, (start, end) in enumerate(itertools.pairwise(cumulative)):
        require(start <= end, f"{name} falls from {start} to {end} at sequence {sequence}; it may not", name)
        _check_past(shape, sequence, past_seqlens[sequence], end - start)


def _check_past(shape: PagedAttentionShape, sequence: int, past: int, new: int) -> None:
    require(past >= 0, f"past_seqlens of sequence {sequence} is {past}; at least 0 is expected", "past_seqlens")
    require(
        past + new <= shape.capacity,
        f"sequence {sequence} has {past} cached and {new} new tokens; its row of block_table maps {shape.capacity}",
        "block_table",
    )
    require(
        not shape.rotary_dim or new == 0 or past + new <= shape.position_limit,
        f"sequence {sequence} reaches {past + new} positions; cos_cache has rows for {shape.position_limit}",
        "cos_cache",
    )


def check_metadata(shape: PagedAttentionShape, metadata: Sequence[int]) -> tuple[int, int, int]:
    """(query bound, K/V bound, lower bound of the longest K/V length) that `attention_metadata` stands for.

    The bounds only size grids and choose tiers; no mask reads them. 0, or a bound past what the shapes allow, stands
    for the bound of the shapes. Raises `InvalidArgument` for a negative entry and for a lower bound above the upper.
    """
    name = "attention_metadata"
    for entry in metadata:
        require(entry >= 0, f"{name} holds {entry}; at least 0 is expected, and 0 is unknown", name)
    query_bound = min(metadata[0] or shape.num_tokens, shape.num_tokens)
    kv_bound = min(metadata[1] or shape.capacity, shape.capacity)
    lower = metadata[2] if len(metadata) == 3 else 0
    require(lower <= kv_bound, f"{name} has lower bound {lower}; at most its upper bound {kv_bound} is expected", name)
    return query_bound, kv_bound, lower
