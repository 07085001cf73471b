"""The loaded model on a thread of its own: a step never waits for a request's JSON, nor a request for a step."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from pageloom.engine.events import Event, FinishEvent
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.errors import DeviceLost
from pageloom.jobs import Job
from pageloom.language_model import LanguageModel
from pageloom.worker.engine_host import EngineHost, Parcel
from pageloom.worker.errors import Stopping, TimedOut
from pageloom.worker.loop_thread import LoopThread
from pageloom.worker.page_session import PageSession


class Generation:
    """The answers to the jobs of one request: iterate once for (index of the job, event)."""

    def __init__(self, size: int, deadline: float | None, abort: Callable[[], None]) -> None:
        """`deadline` is a time of the event loop."""
        self._deadline = deadline
        self._abort = abort
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._unfinished = size

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event]]:
        """Raises the error of an answer that failed, `TimedOut` past the deadline, `Stopping` after `abort_all`."""
        while self._unfinished:
            try:
                async with asyncio.timeout_at(self._deadline):
                    index, event = await self._events.get()
            except TimeoutError as error:
                raise TimedOut("the answer took longer than a request may take; ask for fewer tokens") from error
            if isinstance(event, FinishEvent):
                self._unfinished -= 1
                if event.error is not None:
                    raise event.error
                if event.reason == "abort":
                    raise Stopping("the worker is stopping; ask again once it runs")
            yield index, event

    @property
    def has_next(self) -> bool:
        """Whether the next event is there already."""
        return not self._events.empty()

    def deliver(self, index: int, event: Event) -> None:
        """Take an event."""
        self._events.put_nowait((index, event))

    def abort(self) -> None:
        """End what still runs. Safe to repeat, and after the end."""
        self._abort()


class ModelThread:
    """One model, its engine and their thread, for use on the server's event loop."""

    def __init__(self, thread: LoopThread, model: LanguageModel, max_queue: int) -> None:
        """`model` belongs to the loop of `thread`, and both to this object."""
        self._thread = thread
        self._model = model
        self._server_loop = asyncio.get_running_loop()
        self._host = EngineHost(model, max_queue, self._receive)
        self._ids = itertools.count()
        self._generations: dict[int, Generation] = {}

    @classmethod
    async def load(cls, load: Callable[[], Awaitable[LanguageModel]], max_queue: int) -> ModelThread:
        """Run `load` on a new thread. `max_queue` jobs may wait for a row of the step. Raises what `load` raises."""
        thread = LoopThread("pageloom-engine")

        async def loaded() -> LanguageModel:
            return await load()

        try:
            return cls(thread, await thread.run(loaded()), max_queue)
        except BaseException:
            await thread.stop()
            raise

    @property
    def context_length(self) -> int:
        """Tokens of one sequence, prompt and answer."""
        return self._model.context_length

    @property
    def max_running(self) -> int:
        """Answers that a step advances at once."""
        return self._model.runner.limits.max_sequences

    @property
    def device_name(self) -> str:
        """What computes, in words."""
        return self._model.device_name

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should be told about the model's file."""
        return self._model.warnings

    def explain(self) -> dict[str, Any]:
        """What runs each kind of operation, and why nothing faster does."""
        return self._model.explain()

    @property
    def lost(self) -> DeviceLost | None:
        """Why the device is gone, if it is."""
        return self._host.lost

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for in text; b"" for a control token."""
        return self._model.tokenizer.token_bytes(token_id)

    async def submit(self, jobs: Sequence[Job], deadline: float | None = None) -> Generation:
        """Queue all of `jobs` or none. Raises as `EngineHost.start` does."""
        key = next(self._ids)
        generation = Generation(len(jobs), deadline, lambda: self._end(key))
        self._generations[key] = generation
        try:
            await self._thread.run(self._host.start(key, jobs))
        except BaseException:
            self._end(key)  # the caller may have been cancelled after the engine took the request
            raise
        return generation

    async def stats(self) -> EngineStats:
        """The engine's totals, and what is live."""
        return await self._thread.run(self._host.stats())

    async def snapshot(self) -> EngineSnapshot:
        """The pool and the requests between two steps."""
        return await self._thread.run(self._host.snapshot())

    def page_session(self, name: str, forget: Callable[[], object]) -> PageSession:
        """A session of the page's own protocol. Its jobs do not count among those that `max_queue` bounds."""
        return PageSession(name, self._thread, self._model, forget)

    def refuse_new(self) -> None:
        """From now on `submit` raises `Stopping`; what runs goes on."""
        self._thread.loop.call_soon_threadsafe(self._host.stop)

    def abort_all(self) -> None:
        """End everything that runs; those who wait for it get `Stopping`."""
        self._thread.loop.call_soon_threadsafe(self._host.abort_all)

    async def close(self) -> None:
        """Abort everything, close the model and end the thread."""
        await self._thread.run(self._model.close())
        await self._thread.stop()

    def _end(self, key: int) -> None:
        """Forget a generation, and abort what runs of it."""
        if self._generations.pop(key, None) is not None:
            self._thread.loop.call_soon_threadsafe(self._host.abort, key)

    def _receive(self, parcel: Parcel) -> None:
        self._server_loop.call_soon_threadsafe(self._deliver, parcel)

    def _deliver(self, parcel: Parcel) -> None:
        for key, index, event in parcel:
            generation = self._generations.get(key)
            if generation is not None:
                generation.deliver(index, event)
