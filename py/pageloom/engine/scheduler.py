"""Who runs in the next step.

Policy:
- Decodes first, then prompts under way, then waiting requests; within each the earliest arrival first. A prompt is
  computed in chunks of what is left of the step's tokens, and nobody is admitted unless some are left, so every decode
  has its token and every prompt gets its turn.
- A waiting request is admitted when there is a free row and blocks for its whole context and one new token. Nobody
  overtakes a request that waits for blocks, so a large one is not starved by small ones behind it.
- A waiting request whose next full block is just being computed by a running one waits for that block and then shares
  it; others may overtake it meanwhile. It only ever waits for work under way, so it cannot wait for good.
- When a decode finds no block, the request that arrived last gives up its blocks and is computed again later. The
  earliest arrival is never preempted for another and fits the pool alone, so every step advances somebody.
"""

from __future__ import annotations

import bisect
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from pageloom.engine.batch import RunnerLimits
from pageloom.engine.request import Chunk, Request, RequestState, StepRoom
from pageloom.engine.step import StepPlan
from pageloom.kv.block_pool import BlockPool
from pageloom.kv.block_table import BlockTable
from pageloom.kv.prefix_cache import CachedBlock, PrefixCache, Root


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    room: StepRoom
    chunks: list[Chunk] = field(default_factory=list)

    def add(self, request: Request) -> None:
        """Take as much of the request's next tokens as there is room for; nothing, where there is none."""
        chunk = request.next_chunk(self.room)
        if chunk is not None:
            self.room.take(chunk)
            self.chunks.append(chunk)


class Scheduler:
    """Keeps the waiting and the running requests, each in order of arrival, and the blocks they hold."""

    def __init__(self, limits: RunnerLimits, token_budget: int) -> None:
        """`token_budget` bounds the new tokens of a step; at most `limits.max_tokens`."""
        self.limits = limits
        self.token_budget = token_budget
        self._empty_pool()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        self.num_cached_tokens = 0

    def add(self, request: Request) -> None:
        bisect.insort(self.waiting, request, key=_by_arrival)

    def new_table(self, root: Root) -> BlockTable:
        return BlockTable(self.pool, self.cache, root)

    def remove(self, request: Request) -> None:
        """Take a request out wherever it is, and its blocks back. Safe to repeat."""
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        self._release(request)

    def forget_blocks(self) -> None:
        """Begin with an empty pool, the blocks of the old one being lost: whoever ran waits to be computed again."""
        self._empty_pool()
        for request in self.running:
            request.state = RequestState.PREEMPTED
            self.add(request)
        self.running.clear()
        for request in self.waiting:
            request.restart(self.new_table(request.table.root), device_lost=True)

    def plan(self, fed_by: Container[Request]) -> StepPlan | None:
        """The next step, its blocks reserved; None where nobody can run now.

        `fed_by` has the requests whose pending token the step submitted last can feed.
        """
        limits = self.limits
        draft = _Draft(StepRoom(self.token_budget, limits.max_sequences, limits.max_adjustments, limits.max_targets))
        ready = [request for request in self.running if request.is_ready(fed_by)]
        for request in ready:
            if request.is_decoding and self._grow(request):
                draft.add(request)
        for request in ready:
            if not request.is_decoding and request.state is RequestState.RUNNING:
                draft.add(request)
        self._admit(draft)
        return StepPlan(tuple(draft.chunks)) if draft.chunks else None

    def _empty_pool(self) -> None:
        self.cache = PrefixCache(self.limits.block_size)
        self.pool = BlockPool(self.limits.num_blocks, self.cache)

    def _grow(self, request: Request) -> bool:
        """Own a block for the next position, preempting whoever arrived last; False where that was `request`."""
        while request.state is RequestState.RUNNING:
            if request.table.reserve(request.length):
                return True
            self._preempt(self.running[-1])
        return False

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request)
        request.state = RequestState.PREEMPTED
        self.add(request)
        self.num_preemptions += 1

    def _release(self, request: Request) -> None:
        request.table.release()
        request.restart(request.table.successor())

    def _admit(self, draft: _Draft) -> None:
        if not self.waiting:
            return
        under_way = {request.table.next_key(request.token_ids) for request in self.running}
        for request in self.waiting[: self.limits.max_sequences]:
            if len(self.running) == self.limits.max_sequences or draft.room.tokens == 0 or request.num_pending:
                break
            prefix = self.cache.match(request.table.root, request.token_ids)
            next_key = self.cache.next_key(request.table.root, request.token_ids, prefix)
            if next_key is not None and next_key in under_way:
                continue
            num_tokens = request.first_reservation
            if not request.table.can_reserve(num_tokens, prefix=prefix):
                break
            self._start(request, prefix, num_tokens)
            under_way.add(request.table.next_key(request.token_ids))
            draft.add(request)

    def _start(self, request: Request, prefix: Sequence[CachedBlock], num_tokens: int) -> None:
        self.waiting.remove(request)
        bisect.insort(self.running, request, key=_by_arrival)
        request.state = RequestState.RUNNING
        request.table.adopt(prefix)
        request.table.reserve(num_tokens)
        request.num_submitted = request.table.num_committed
        if request.admit(request.table.num_committed):
            self.num_cached_tokens += request.table.num_committed


def _by_arrival(request: Request) -> int:
    return request.arrival
