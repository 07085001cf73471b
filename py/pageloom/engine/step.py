"""A step as the scheduler plans it, and as the Runner gets it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from pageloom.engine.batch import LogitAdjustment, StepBatch
from pageloom.engine.request import Request
from pageloom.engine.sampler import TokenAdjustment
from pageloom.kv.block_table import BlockTable, blocks_for


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The new tokens of one request in one step: positions [start, end) of the table it has at that time."""

    request: Request
    table: BlockTable
    start: int
    end: int
    samples: bool
    """Whether the step finds candidates for the token at position `end`."""
    adjustments: tuple[TokenAdjustment, ...] = ()

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    @property
    def is_decode(self) -> bool:
        return self.start >= self.request.prompt_length and self.num_tokens == 1


@dataclass(frozen=True, eq=False)
class StepPlan:
    """What one step computes. Blocks for it are reserved."""

    chunks: tuple[Chunk, ...]

    @cached_property
    def sampling(self) -> tuple[Chunk, ...]:
        """The chunks with a row of logits, in the order of the rows."""
        return tuple(chunk for chunk in self.chunks if chunk.samples)

    @cached_property
    def rows(self) -> dict[Request, int]:
        return {chunk.request: row for row, chunk in enumerate(self.sampling)}

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def num_decode_tokens(self) -> int:
        return sum(chunk.is_decode for chunk in self.chunks)

    @cached_property
    def needs_host(self) -> bool:
        """Whether the host has to see this step's candidates before the next step can be made."""
        return any(chunk.request.params.needs_host for chunk in self.sampling)


def build_batch(plan: StepPlan, fed_by: dict[Request, int], block_size: int, num_candidates: int) -> StepBatch:
    """The plan as a Runner's step. `fed_by` gives the rows of the step submitted last.

    A token that only the device knows is fed from its request's row there.
    """
    input_ids: list[int] = []
    feed_rows: list[int] = []
    for chunk in plan.chunks:
        known = chunk.request.token_ids[chunk.start : chunk.end]
        fed = chunk.num_tokens - len(known)
        input_ids += [*known, *[0] * fed]
        feed_rows += [*[-1] * len(known), *(fed_by[chunk.request] for _ in range(fed))]
    ends = list(itertools.accumulate((chunk.num_tokens for chunk in plan.chunks), initial=0))
    return StepBatch(
        input_ids=tuple(input_ids),
        feed_rows=tuple(feed_rows),
        cumulative_sequence_length=tuple(ends),
        past_seqlens=tuple(chunk.start for chunk in plan.chunks),
        block_table=tuple(tuple(chunk.table.block_ids[: blocks_for(chunk.end, block_size)]) for chunk in plan.chunks),
        logits_rows=tuple(end - 1 for end, chunk in zip(ends[1:], plan.chunks, strict=True) if chunk.samples),
        adjustments=tuple(
            LogitAdjustment(row, entry.token_id, entry.divisor, entry.bias)
            for row, chunk in enumerate(plan.sampling)
            for entry in chunk.adjustments
        ),
        num_candidates=num_candidates,
    )
