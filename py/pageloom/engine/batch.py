"""What crosses between the engine and a Runner: one plain step in, candidates of the sampled rows out.

The engine knows no device and a Runner knows no request. The step is the runtime contract of continuous batching:
packed token ids, the prefix sum of the new tokens a sequence, the tokens each has cached, and the block tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogitAdjustment:
    """Changes one logit before candidates are chosen: `x -> (x / divisor if x > 0 else x * divisor) + bias`.

    `row` indexes `StepBatch.logits_rows`. At most one adjustment a (row, token).
    """

    row: int
    token_id: int
    divisor: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One forward pass over B sequences, `num_tokens` new tokens in all, packed without padding.

    Lengths are in tokens. Token t of sequence b (`cumulative_sequence_length[b] <= t <
    cumulative_sequence_length[b + 1]`) has the absolute position `past_seqlens[b] + t - cumulative_sequence_length[b]`.
    """

    input_ids: tuple[int, ...]
    """int32[num_tokens]; where `feed_rows[t] >= 0` the entry is ignored."""
    feed_rows: tuple[int, ...]
    """int32[num_tokens]; -1, or the row of the *previously submitted* step whose first candidate is this token.
    The token then never passes through the host."""
    cumulative_sequence_length: tuple[int, ...]
    """int32[B + 1]; starts at 0, ends at num_tokens, non-decreasing."""
    past_seqlens: tuple[int, ...]
    """int32[B]; tokens of the sequence already in the cache."""
    block_table: tuple[tuple[int, ...], ...]
    """B rows of physical block ids; column i holds positions [i * block_size, (i + 1) * block_size)."""
    logits_rows: tuple[int, ...]
    """Indices of the tokens whose next-token distribution is wanted, ascending."""
    adjustments: tuple[LogitAdjustment, ...] = ()
    num_candidates: int = 1
    """How many candidates a row; 1 is greedy. At most `RunnerLimits.max_candidates`."""


@dataclass(frozen=True, slots=True)
class RowCandidates:
    """The best `num_candidates` tokens of one row, best first (ties: lower id first), with their adjusted logits.

    `logsumexp` is over the whole adjusted row, so `logits[i] - logsumexp` is a log-probability at temperature 1.
    """

    token_ids: tuple[int, ...]
    logits: tuple[float, ...]
    logsumexp: float


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """What a Runner was built for. `num_blocks` and `block_size` describe the KV pool."""

    max_tokens: int
    """New tokens a step, over all sequences."""
    max_sequences: int
    """Sequences a step; also the most `logits_rows`."""
    num_blocks: int
    block_size: int
    max_blocks_per_sequence: int
    max_candidates: int
    max_adjustments: int
    vocab_size: int


class StepTicket(Protocol):
    """Stands for a submitted step until its result is read."""


class Runner(Protocol):
    """Runs steps in the order in which they are submitted."""

    @property
    def limits(self) -> RunnerLimits: ...

    def submit(self, batch: StepBatch) -> StepTicket:
        """Queue a step and return at once. Raises `InvalidArgument` for a batch that breaks its contract, before
        anything is queued, and `DeviceLost` when the device is gone."""
        ...

    async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        """The candidates of the step's `logits_rows`, in order; `()` for a step without rows. Raises what the device
        raised (`DeviceLost`, `DeviceError`)."""
        ...

    def close(self) -> None: ...
