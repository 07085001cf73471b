"""The engine for callers: submit prompts, read their tokens as they come, stop them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Generic

from pageloom.engine.classification import Label
from pageloom.engine.config import EngineConfig
from pageloom.engine.constraint import Constraint
from pageloom.engine.core import EngineCore
from pageloom.engine.events import Completion, Event, FinishEvent
from pageloom.engine.output_text import Detokenizer
from pageloom.engine.recovery import R, Recovery, RecoveryEvent, replacement
from pageloom.engine.request import Request
from pageloom.engine.sampling_params import SamplingParams
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.errors import DeviceLost, InvalidArgument, PageloomError

_GREEDY = SamplingParams()


class RequestHandle:
    """A submitted request.

    Iterate over it for its events, or await `result()`, or both at once. It is iterated once; leaving the iteration
    before the `FinishEvent` aborts the request.
    """

    def __init__(self, enqueue: Callable[[Callable[[Event], None]], Request], abort: Callable[[str], bool]) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._finished = asyncio.Event()
        self._abort = abort
        self._request = enqueue(self._deliver)

    @property
    def id(self) -> str:
        return self._request.id

    def abort(self) -> bool:
        """End the request now, whatever its state; False where it has ended already."""
        return self._abort(self.id) if not self._finished.is_set() else False

    async def result(self) -> Completion:
        """The whole request, once it has ended. Raises the error of a request that failed."""
        await self._finished.wait()
        if self._request.error is not None:
            raise self._request.error
        return self._request.completion()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        try:
            while not (self._finished.is_set() and self._events.empty()):
                yield await self._events.get()
        finally:
            self.abort()

    def _deliver(self, event: Event) -> None:
        self._events.put_nowait(event)
        if isinstance(event, FinishEvent):
            self._finished.set()


class Engine(Generic[R]):
    """Runs requests on one Runner, all at once. Belongs to one event loop; a step runs only while requests are live."""

    def __init__(
        self,
        runner: R,
        *,
        context_length: int,
        stop_ids: frozenset[int],
        detokenizer: Callable[[], Detokenizer],
        config: EngineConfig | None = None,
        recovery: Recovery[R] | None = None,
    ) -> None:
        """`stop_ids` are the model's own; `detokenizer` makes a new decoder for each request.

        The engine owns the runner: `close` closes it. With `recovery` a lost device is replaced, and requests go on.
        """
        self._core = EngineCore(
            runner,
            context_length=context_length,
            stop_ids=stop_ids,
            detokenizer=detokenizer,
            config=config or EngineConfig(),
            recovers=recovery is not None,
        )
        self.runner = runner
        """What runs the steps; another one after each recovery."""
        self.context_length = context_length
        """The most tokens that one sequence may have."""
        self._recovery = recovery
        self._recovered_at = float("-inf")
        self._loop_task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams = _GREEDY,
        *,
        constraint: Constraint | None = None,
        labels: Sequence[Label] = (),
        request_id: str | None = None,
        cache_salt: str | None = None,
    ) -> RequestHandle:
        """Queue a prompt; call it on the event loop. Only requests with equal `cache_salt` share blocks.

        With `constraint`, which follows this request alone, only answers that keep it are given. With `labels` the
        answer is one of them, and its `FinishEvent` has their probabilities.

        Raises `InvalidArgument` for tokens outside the vocabulary, an id in use or another event loop;
        `CapacityExceeded` for a prompt that can never run, a full queue, or sampling that the Runner has no room for;
        `DeviceLost` once the device is lost.
        """
        loop = asyncio.get_running_loop()
        running = self._loop_task is not None and not self._loop_task.done()
        if self._loop_task is not None and running and self._loop_task.get_loop() is not loop:
            raise InvalidArgument("the engine runs requests on another event loop; use it from that one")

        def enqueue(listener: Callable[[Event], None]) -> Request:
            return self._core.add(
                prompt_ids,
                params,
                listener,
                constraint=constraint,
                labels=labels,
                request_id=request_id,
                cache_salt=cache_salt,
            )

        handle = RequestHandle(enqueue, self._core.abort)
        if not running:
            self._loop_task = loop.create_task(self._run())
        return handle

    def lose(self, error: DeviceLost) -> None:
        """Say, on the event loop, that the device is gone: it is replaced though nothing runs.

        Nothing happens where requests run, as their step finds out by itself, or where the engine has ended.
        """
        if self._closed or self.failure is not None or self._core.has_work or self._core.lost is not None:
            return
        self._core.lose(error)
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.get_running_loop().create_task(self._run())

    @property
    def failure(self) -> PageloomError | None:
        """What ended the engine, if it has ended: every request fails with it."""
        return self._core.failure

    def abort(self, request_id: str) -> bool:
        """End a request now, whatever its state; False where it has ended already or never was."""
        return self._core.abort(request_id)

    def snapshot(self) -> EngineSnapshot:
        return self._core.snapshot()

    def stats(self) -> EngineStats:
        return self._core.stats()

    async def close(self) -> None:
        """Abort every request, wait for the steps under way, and close the runner. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._core.close()
        if self._loop_task is not None and not self._loop_task.done():
            await self._loop_task
        self.runner.close()

    async def _run(self) -> None:
        try:
            await self._step_while_there_is_work()
        except asyncio.CancelledError:  # the event loop is ending, and only it could await the steps under way
            self._core.fail(PageloomError("the event loop ended while requests ran; load the model again"))
            raise

    async def _step_while_there_is_work(self) -> None:
        while self._core.has_work or self._core.lost:
            try:
                if self._core.lost is None:
                    await self._core.step()
                else:
                    await self._replace_runner()
            except Exception as error:
                failure = PageloomError(f"the engine failed: {error!r}")
                failure.__cause__ = error
                self._core.fail(failure)
            # A runner whose result is there at once never lets the loop go: callers get their turn between steps.
            await asyncio.sleep(0)

    async def _replace_runner(self) -> None:
        if self._recovery is None:
            raise PageloomError("a device was lost that nothing replaces")
        began = time.monotonic()
        self._recovery.tell(RecoveryEvent("lost", self._core.num_live))
        try:
            self.runner = await replacement(self._recovery, self.runner, began - self._recovered_at)
        except DeviceLost as error:
            event = RecoveryEvent("gone", self._core.num_live, time.monotonic() - began, error)
            self._core.fail(error)
        else:
            self._recovered_at = time.monotonic()
            event = RecoveryEvent("recovered", self._core.num_live, self._recovered_at - began)
            self._core.resume(self.runner)
        self._recovery.tell(event)
