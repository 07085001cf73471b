"""The engine without its loop: requests in, one step at a time.

A step is a transaction. The scheduler plans it and reserves its blocks, the Runner executes it, and only its result
commits it: computed tokens become shareable, sampled tokens reach their callers. When the Runner refuses or fails, the
requests of that step end with the error, their blocks go back, and the next step is planned as if they had never been.

A lost device takes every block and every step under way with it. Requests then go on from the tokens that they have
once `resume` brings another Runner, if there is to be one; else they end.

Up to `pipeline_depth` steps are under way at once. The next step is submitted before the result of the last is known
where no row of it needs the host; its tokens are fed on the device. What ran past a stop is discarded: it was written
behind the committed tokens of private blocks, and whoever gets such a block later writes it in a later step.

A row needs the host where its token is drawn, or where what may follow depends on it. All rows of its step then wait
for the way to the host and back: going ahead without that row would let it move in every other step only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pageloom.engine.admission import check_labels, check_queue, check_sampling, check_token_ids, length_limit
from pageloom.engine.batch import RowCandidates, Runner, StepTicket
from pageloom.engine.classification import Classification, Label
from pageloom.engine.config import EngineConfig
from pageloom.engine.constraint import Constraint
from pageloom.engine.events import Event, FinishEvent
from pageloom.engine.generation import Generation
from pageloom.engine.meter import Meter
from pageloom.engine.output_text import Detokenizer, OutputText
from pageloom.engine.request import Chunk, Request
from pageloom.engine.sampling_params import SamplingParams
from pageloom.engine.scheduler import Scheduler
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.engine.snapshot_taking import take_snapshot
from pageloom.engine.step import StepPlan, build_batch
from pageloom.errors import DeviceError, DeviceLost, InvalidArgument, PageloomError
from pageloom.kv.prefix_cache import Root


@dataclass(frozen=True, slots=True)
class _InFlight:
    plan: StepPlan
    ticket: StepTicket
    submitted_at: float


class EngineCore:
    """Drives one Runner. Not for several threads: everything happens on the caller's event loop."""

    def __init__(
        self,
        runner: Runner,
        *,
        context_length: int,
        stop_ids: frozenset[int],
        detokenizer: Callable[[], Detokenizer],
        config: EngineConfig,
        recovers: bool = False,
    ) -> None:
        """With `recovers` a lost device ends no request: `lost` says so, and `resume` has to follow."""
        self.limits = runner.limits
        self.lost: DeviceLost | None = None
        """Why the device is gone, while nothing has taken its place."""
        self._recovers = recovers
        self._runner = runner
        self._context_length = context_length
        self._stop_ids = stop_ids
        self._detokenizer = detokenizer
        self._config = config
        budget = min(config.token_budget or self.limits.max_tokens, self.limits.max_tokens)
        self._scheduler = Scheduler(self.limits, budget)
        self._live: dict[str, Request] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._failure: PageloomError | None = None
        self._num_arrivals = 0
        self._meter = Meter(config.timeline_length)

    @property
    def failure(self) -> PageloomError | None:
        """What ended the engine, if it has ended."""
        return self._failure

    @property
    def has_work(self) -> bool:
        return bool(self._live or self._in_flight)

    def add(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        listener: Callable[[Event], None],
        *,
        constraint: Constraint | None = None,
        labels: Sequence[Label] = (),
        request_id: str | None = None,
        cache_salt: str | None = None,
    ) -> Request:
        """Queue a request; `listener` gets its events from within `step` and `abort`.

        With `constraint` only answers that keep it are given; with `labels` the answer is one of them.

        Raises `InvalidArgument` for tokens outside the vocabulary or an id in use, `CapacityExceeded` where the request
        can never run or the queue is full, what `constraint.allowed` raises, and what ended the engine where it has
        ended.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # one error for all: it would keep the frames of each
        check_queue(len(self._scheduler.waiting), self._config.max_waiting)
        check_token_ids(prompt_ids, params, self.limits.vocab_size)
        limit = length_limit(len(prompt_ids), params, self.limits, self._context_length)
        check_sampling(prompt_ids, params, self.limits, limit - len(prompt_ids))
        check_labels(len(prompt_ids), labels, len(self._stop_ids), self.limits, self._context_length)
        arrival = self._num_arrivals
        request_id = f"request-{arrival}" if request_id is None else request_id
        if request_id in self._live:
            raise InvalidArgument(f"the request id {request_id!r} is in use; take another", param="request_id")
        table = self._scheduler.new_table(Root(cache_salt, None if self._config.share_prefixes else arrival))
        request: Request
        if labels:
            request = Classification(
                request_id,
                arrival,
                prompt_ids,
                params,
                labels,
                table=table,
                end_ids=self._stop_ids,
                listener=listener,
            )
        else:
            request = Generation(
                request_id,
                arrival,
                prompt_ids,
                params,
                table=table,
                length_limit=limit,
                stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._stop_ids),
                text=OutputText(self._detokenizer(), params.stop),
                constraint=constraint,
                listener=listener,
            )
        self._num_arrivals += 1
        self._live[request_id] = request
        self._scheduler.add(request)
        return request

    def abort(self, request_id: str) -> bool:
        """End a request in whatever state it is; False where it has ended already or never was."""
        request = self._live.get(request_id)
        if request is None:
            return False
        self._end(request, FinishEvent("abort", request.usage))
        return True

    def lose(self, error: DeviceLost) -> None:
        """Take down that the device is gone: nothing under way comes back. `step` comes after `resume`."""
        if not self._recovers:
            self.fail(error)
            return
        self.lost = error
        self._in_flight.clear()
        self._scheduler.forget_blocks()

    def resume(self, runner: Runner) -> None:
        """Go on after `lose` on a Runner with the same limits."""
        self._runner = runner
        self.lost = None

    @property
    def num_live(self) -> int:
        """Requests that have not ended."""
        return len(self._live)

    def fail(self, error: PageloomError) -> None:
        """End every request with `error`, and refuse new ones with it. Steps under way are still to be awaited."""
        self._failure = error
        self.lost = None
        for request in list(self._live.values()):
            self._end(request, FinishEvent("error", request.usage, error=error))

    def close(self) -> None:
        """Abort every request and refuse new ones. Steps under way are still to be committed by `step`."""
        self._failure = InvalidArgument("the engine is closed; make a new one")
        for request_id in list(self._live):
            self.abort(request_id)

    async def step(self) -> None:
        """Submit the next step if there is one, and commit the oldest one once the pipeline is full or has no next.

        Raises `PageloomError` where there are requests and none can advance, which the scheduler's policy rules out.
        """
        progressed = self._submit_next()
        if self._in_flight and (not progressed or len(self._in_flight) >= self._config.pipeline_depth):
            await self._commit_oldest()
        elif not progressed and self._live:
            raise PageloomError(f"none of {len(self._live)} requests can advance")

    def snapshot(self) -> EngineSnapshot:
        return take_snapshot(self._scheduler, self._meter, num_in_flight=len(self._in_flight))

    def stats(self) -> EngineStats:
        scheduler = self._scheduler
        return self._meter.stats(
            scheduler.pool,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            cached_tokens=scheduler.num_cached_tokens,
            preemptions=scheduler.num_preemptions,
        )

    def _submit_next(self) -> bool:
        """Plan and submit a step; False where there is none to submit yet."""
        if any(step.plan.needs_host for step in self._in_flight):
            return False
        fed_by = self._in_flight[-1].plan.first_rows if self._in_flight else {}
        plan = self._scheduler.plan(fed_by)
        if plan is None:
            return False
        candidates = max(
            (chunk.request.num_candidates(self.limits.max_candidates) for chunk in plan.sampling), default=1
        )
        batch = build_batch(plan, fed_by, self.limits.block_size, candidates)
        try:
            ticket = self._runner.submit(batch)
        except Exception as error:
            self._roll_back(plan, error)
            return True
        for chunk in plan.chunks:
            chunk.request.submitted(chunk)
        self._in_flight.append(_InFlight(plan, ticket, time.perf_counter()))
        self._meter.observe(self._scheduler.pool)
        return True

    async def _commit_oldest(self) -> None:
        step = self._in_flight[0]
        try:
            rows = await self._runner.result(step.ticket)
            if len(rows) != len(step.plan.rows):
                raise DeviceError(f"the runner gave {len(rows)} rows; {len(step.plan.rows)} were asked for")
        except Exception as error:
            self._in_flight.popleft()
            self._roll_back(step.plan, error)
            return
        self._in_flight.popleft()
        for chunk in step.plan.chunks:
            if chunk.table is chunk.request.table:
                # Tokens that are tried out behind the known ones are written over later: they are never shared.
                chunk.table.commit(chunk.request.token_ids, min(chunk.end, chunk.request.num_known))
        for chunk in step.plan.sampling:
            first = step.plan.first_rows[chunk.request]
            if not chunk.request.is_finished:
                self._accept(chunk, rows[first : first + len(chunk.rows)])
        self._meter.record(step.plan, step.submitted_at)

    def _accept(self, chunk: Chunk, rows: Sequence[RowCandidates]) -> None:
        request = chunk.request
        known = request.num_known
        try:
            end = request.accept(chunk, rows)
        except DeviceError as error:
            end = FinishEvent("error", request.usage, error=error)
        self._meter.count_outputs(request.num_known - known)
        if end is not None:
            self._end(request, end)

    def _roll_back(self, plan: StepPlan, error: Exception) -> None:
        """End the requests of a failed step; a lost device concerns all of them."""
        if not isinstance(error, PageloomError):
            cause, error = error, DeviceError(f"the step failed: {type(error).__name__}: {error}")
            error.__cause__ = cause
        if isinstance(error, DeviceLost):
            self.lose(error)
            return
        for chunk in plan.chunks:
            self._end(chunk.request, FinishEvent("error", chunk.request.usage, error=error))

    def _end(self, request: Request, event: FinishEvent) -> None:
        if not request.is_finished:
            del self._live[request.id]
            self._scheduler.remove(request)
            request.finish(event)
            self._meter.ended.append(request.record())
