"""A step as the scheduler plans it, and as the Runner gets it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from pageloom.engine.batch import LogitAdjustment, LogitTarget, RowMask, StepBatch
from pageloom.engine.request import Chunk, Request, Row
from pageloom.kv.block_table import blocks_for


@dataclass(frozen=True, eq=False)
class StepPlan:
    """What one step computes. Blocks for it are reserved."""

    chunks: tuple[Chunk, ...]

    @cached_property
    def sampling(self) -> tuple[Chunk, ...]:
        """The chunks with rows of logits, in the order of the rows."""
        return tuple(chunk for chunk in self.chunks if chunk.rows)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for chunk in self.sampling for row in chunk.rows)

    @cached_property
    def first_rows(self) -> dict[Request, int]:
        """The index of the first row of each request that has rows."""
        starts = itertools.accumulate((len(chunk.rows) for chunk in self.sampling), initial=0)
        return {chunk.request: row for row, chunk in zip(starts, self.sampling, strict=False)}

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def num_decode_tokens(self) -> int:
        return sum(chunk.is_decode for chunk in self.chunks)

    @cached_property
    def needs_host(self) -> bool:
        """Whether the host has to see this step's candidates before the next step can be made."""
        return any(chunk.request.needs_host for chunk in self.sampling)


def build_batch(plan: StepPlan, fed_by: dict[Request, int], block_size: int, num_candidates: int) -> StepBatch:
    """The plan as a Runner's step. `fed_by` gives the rows of the step submitted last.

    A token that only the device knows is fed from its request's row there.
    """
    input_ids: list[int] = []
    feed_rows: list[int] = []
    for chunk in plan.chunks:
        known = chunk.token_ids
        fed = chunk.num_tokens - len(known)
        input_ids += [*known, *[0] * fed]
        feed_rows += [*[-1] * len(known), *(fed_by[chunk.request] for _ in range(fed))]
    ends = list(itertools.accumulate((chunk.num_tokens for chunk in plan.chunks), initial=0))
    rows = list(enumerate(plan.rows))
    return StepBatch(
        input_ids=tuple(input_ids),
        feed_rows=tuple(feed_rows),
        cumulative_sequence_length=tuple(ends),
        past_seqlens=tuple(chunk.start for chunk in plan.chunks),
        block_table=tuple(tuple(chunk.table.block_ids[: blocks_for(chunk.end, block_size)]) for chunk in plan.chunks),
        logits_rows=tuple(
            token
            for end, chunk in zip(ends[1:], plan.chunks, strict=True)
            for token in range(end - len(chunk.rows), end)
        ),
        adjustments=tuple(
            LogitAdjustment(index, entry.token_id, entry.divisor, entry.bias)
            for index, row in rows
            for entry in row.adjustments
        ),
        num_candidates=num_candidates,
        masks=tuple(RowMask(index, row.allowed) for index, row in rows if row.allowed is not None),
        targets=tuple(LogitTarget(index, token_id) for index, row in rows for token_id in row.targets),
    )
