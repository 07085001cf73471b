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
class RowMask:
    """The tokens that may be chosen in one row; the logits of all others become -inf before candidates are chosen.

    `row` indexes `StepBatch.logits_rows`. `allowed` is little-endian u32 `[ceil(vocab_size / 32)]`: bit `t % 32` of
    word `t // 32` is set where token t is allowed. At least one is, and none past the vocabulary.
    """

    row: int
    allowed: bytes


def mask_bytes(vocab_size: int) -> int:
    """The length of `RowMask.allowed`."""
    return 4 * -(-vocab_size // 32)


@dataclass(frozen=True, slots=True)
class LogitTarget:
    """A token whose logit in a row is wanted whether or not it is a candidate. `row` as in `RowMask`."""

    row: int
    token_id: int


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
    masks: tuple[RowMask, ...] = ()
    """At most one a row, by ascending row. Equal masks may be the same object."""
    targets: tuple[LogitTarget, ...] = ()
    """By ascending row; at most `RunnerLimits.max_targets`."""


@dataclass(frozen=True, slots=True)
class RowCandidates:
    """The best `num_candidates` tokens of one row, best first (ties: lower id first), with their adjusted logits.

    `logsumexp` is over the whole adjusted and masked row, so `logits[i] - logsumexp` is a log-probability at
    temperature 1. Where a mask allows fewer tokens than there are candidates, the last ones have the logit -inf and
    any id.
    """

    token_ids: tuple[int, ...]
    logits: tuple[float, ...]
    logsumexp: float
    target_logits: tuple[float, ...] = ()
    """Of the row's `LogitTarget`s, in their order; adjusted and masked as the candidates are."""


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """What a Runner was built for. `num_blocks` and `block_size` describe the KV pool."""

    max_tokens: int
    """New tokens a step, over all sequences."""
    max_sequences: int
    """Sequences a step; also the most `logits_rows`, of which one sequence may have several."""
    num_blocks: int
    block_size: int
    max_blocks_per_sequence: int
    max_candidates: int
    max_adjustments: int
    vocab_size: int
    max_targets: int = 4096


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
