"""The engine for callers: submit prompts, read their tokens as they come, stop them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from pageloom.engine.batch import Runner
from pageloom.engine.core import EngineConfig, EngineCore
from pageloom.engine.events import Completion, Event, FinishEvent
from pageloom.engine.output_text import Detokenizer
from pageloom.engine.request import Request
from pageloom.engine.sampling_params import SamplingParams
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.errors import InvalidArgument, PageloomError

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


class Engine:
    """Runs requests on one Runner, all at once. Belongs to one event loop; a step runs only while requests are live."""

    def __init__(
        self,
        runner: Runner,
        *,
        context_length: int,
        stop_ids: frozenset[int],
        detokenizer: Callable[[], Detokenizer],
        config: EngineConfig | None = None,
    ) -> None:
        """`stop_ids` are the model's own; `detokenizer` makes a new decoder for each request.

        The engine owns the runner: `close` closes it.
        """
        self._core = EngineCore(
            runner,
            context_length=context_length,
            stop_ids=stop_ids,
            detokenizer=detokenizer,
            config=config or EngineConfig(),
        )
        self._runner = runner
        self._loop_task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams = _GREEDY,
        *,
        request_id: str | None = None,
        cache_salt: str | None = None,
    ) -> RequestHandle:
        """Queue a prompt; call it on the event loop. Only requests with equal `cache_salt` share blocks.

        Raises `InvalidArgument` for tokens outside the vocabulary, an id in use or another event loop;
        `CapacityExceeded` for a prompt that can never run, a full queue, or sampling that the Runner has no room for;
        `DeviceLost` once the device is lost.
        """
        loop = asyncio.get_running_loop()
        running = self._loop_task is not None and not self._loop_task.done()
        if self._loop_task is not None and running and self._loop_task.get_loop() is not loop:
            raise InvalidArgument("the engine runs requests on another event loop; use it from that one")

        def enqueue(listener: Callable[[Event], None]) -> Request:
            return self._core.add(prompt_ids, params, listener, request_id=request_id, cache_salt=cache_salt)

        handle = RequestHandle(enqueue, self._core.abort)
        if not running:
            self._loop_task = loop.create_task(self._run())
        return handle

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
        self._runner.close()

    async def _run(self) -> None:
        try:
            await self._step_while_there_is_work()
        except asyncio.CancelledError:  # the event loop is ending, and only it could await the steps under way
            self._core.fail(PageloomError("the event loop ended while requests ran; load the model again"))
            raise

    async def _step_while_there_is_work(self) -> None:
        while self._core.has_work:
            try:
                await self._core.step()
            except Exception as error:
                failure = PageloomError(f"the engine failed: {error!r}")
                failure.__cause__ = error
                self._core.fail(failure)
            # A runner whose result is there at once never lets the loop go: callers get their turn between steps.
            await asyncio.sleep(0)
