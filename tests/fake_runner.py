"""A Runner that needs no device: a tiny deterministic model behind a real paged cache.

The next token depends on every token before it *as found in the cache through the block table*, so a wrong block, a
wrong position, a hole or a page of another request changes the output. A slot that was never written, or was poisoned,
spreads as NaN, as it would on a device.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pageloom.engine.batch import RowCandidates, RunnerLimits, StepBatch, StepTicket
from pageloom.engine.check_batch import check_batch
from pageloom.errors import InvalidArgument

VOCAB_SIZE = 32
State = bytes
POISON: State | None = None


def next_state(token_id: int, position: int, earlier: Sequence[State]) -> State:
    """The state of a token; it depends on its id, its position and the states of all tokens before it."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(b"%d@%d" % (token_id, position))
    for state in earlier:
        digest.update(state)
    return digest.digest()


def logits_of(state: State) -> list[float]:
    """32 logits from 0 up to 8."""
    wide = hashlib.blake2b(state, digest_size=2 * VOCAB_SIZE).digest()
    return [int.from_bytes(wide[2 * i : 2 * i + 2], "little") / 8192 for i in range(VOCAB_SIZE)]


def states_of(token_ids: Sequence[int]) -> list[State]:
    states: list[State] = []
    for position, token_id in enumerate(token_ids):
        states.append(next_state(token_id, position, states))
    return states


def greedy(prompt_ids: Sequence[int], num_tokens: int) -> list[int]:
    """What a request has to give, computed without cache, batch or engine."""
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        logits = logits_of(states_of(token_ids)[-1])
        token_ids.append(logits.index(max(logits)))
    return token_ids[len(prompt_ids) :]


@dataclass(frozen=True)
class Ticket:
    index: int


@dataclass
class FakeRunner:
    """Computes each step when it is submitted and gives the result when it is asked for.

    `refuse[i]` is raised by the i-th `submit`; `fail[i]` by `result` for the i-th one, whose writes are then lost.
    """

    limits: RunnerLimits
    refuse: dict[int, Exception] = field(default_factory=dict)
    fail: dict[int, Exception] = field(default_factory=dict)
    batches: list[StepBatch] = field(default_factory=list)
    """Every step that was submitted and not refused."""
    closed: bool = False

    def __post_init__(self) -> None:
        self._slots: list[State | None] = [POISON] * (self.limits.num_blocks * self.limits.block_size)
        self._results: dict[int, tuple[RowCandidates, ...]] = {}
        self._previous: tuple[RowCandidates, ...] = ()
        self._num_submitted = 0

    def poison(self, block_ids: Iterable[int]) -> None:
        """Overwrite blocks that nobody may read before they are written again."""
        for block, offset in itertools.product(block_ids, range(self.limits.block_size)):
            self._slots[block * self.limits.block_size + offset] = POISON

    def submit(self, batch: StepBatch) -> Ticket:
        index = self._num_submitted
        self._num_submitted += 1
        if index in self.refuse:
            raise self.refuse[index]
        check_batch(batch, self.limits)
        if max(batch.feed_rows) >= len(self._previous):
            raise InvalidArgument(f"feed row {max(batch.feed_rows)} of {len(self._previous)} rows")
        self.batches.append(batch)
        states = self._write(batch, lost=index in self.fail)
        self._previous = tuple(candidates(states[token], batch, row) for row, token in enumerate(batch.logits_rows))
        self._results[index] = self._previous
        return Ticket(index)

    async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        await asyncio.sleep(0)
        return self.take(ticket)

    def take(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        """The result of a step; each is taken once."""
        assert isinstance(ticket, Ticket)
        rows = self._results.pop(ticket.index)
        if ticket.index in self.fail:
            raise self.fail[ticket.index]
        return rows

    def close(self) -> None:
        self.closed = True

    def _write(self, batch: StepBatch, *, lost: bool) -> list[State | None]:
        states: list[State | None] = []
        for sequence, (start, end) in enumerate(itertools.pairwise(batch.cumulative_sequence_length)):
            blocks, past = batch.block_table[sequence], batch.past_seqlens[sequence]
            for token in range(start, end):
                position = past + token - start
                row = batch.feed_rows[token]
                token_id = batch.input_ids[token] if row < 0 else self._previous[row].token_ids[0]
                earlier = [self._slots[self._slot(blocks, p)] for p in range(position)]
                known = [state for state in earlier if state is not POISON]
                state = next_state(token_id, position, known) if len(known) == position and not lost else POISON
                self._slots[self._slot(blocks, position)] = state
                states.append(state)
        return states

    def _slot(self, blocks: Sequence[int], position: int) -> int:
        block, offset = divmod(position, self.limits.block_size)
        return blocks[block] * self.limits.block_size + offset


def candidates(state: State | None, batch: StepBatch, row: int) -> RowCandidates:
    count, targets = batch.num_candidates, [target.token_id for target in batch.targets if target.row == row]
    if state is POISON:
        return RowCandidates((0,) * count, (math.nan,) * count, math.nan, (math.nan,) * len(targets))
    logits = logits_of(state)
    for entry in batch.adjustments:
        if entry.row == row:
            logit = logits[entry.token_id]
            logits[entry.token_id] = (logit / entry.divisor if logit > 0 else logit * entry.divisor) + entry.bias
    for mask in batch.masks:
        if mask.row == row:
            allowed = int.from_bytes(mask.allowed, "little")
            logits = [logit if allowed >> token_id & 1 else -math.inf for token_id, logit in enumerate(logits)]
    order = sorted(range(VOCAB_SIZE), key=lambda token_id: (-logits[token_id], token_id))[:count]
    logsumexp = math.log(math.fsum(math.exp(logit) for logit in logits))
    return RowCandidates(tuple(order), tuple(logits[i] for i in order), logsumexp, tuple(logits[i] for i in targets))


def limits(**changes: int) -> RunnerLimits:
    """A small pool with blocks of 4; `changes` by field name."""
    values = {
        "max_tokens": 16,
        "max_sequences": 4,
        "num_blocks": 32,
        "block_size": 4,
        "max_blocks_per_sequence": 16,
        "max_candidates": 8,
        "max_adjustments": 256,
        "vocab_size": VOCAB_SIZE,
    }
    return RunnerLimits(**{**values, **changes})
