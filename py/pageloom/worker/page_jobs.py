"""The jobs of one page: those that run, and behind them those that wait for a place in the engine, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from pageloom.session import PreparedJob, Session


class PageJobs:
    """Used on the engine's loop. Prompts are encoded on other threads, so that a long one holds no step up."""

    def __init__(self, session: Session, *, places: int) -> None:
        """At most `places` jobs are with the engine."""
        self._session = session
        self._places = places
        self._waiting: dict[int, object] = {}
        """The fields of each job, by its id."""
        self._running: dict[int, asyncio.Task[None]] = {}
        self._filling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Jobs that have not been answered."""
        return len(self._waiting) + len(self._running)

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._waiting or call_id in self._running

    def add(self, jobs: Sequence[tuple[int, object]]) -> None:
        """Take jobs, (id, fields) each, whose ids are none of those that are there."""
        self._waiting.update(jobs)
        self._fill()

    def abort(self, call_id: int) -> None:
        """Stop a job, wherever it is; nothing happens where it has ended."""
        if call_id in self._waiting:
            self._running[call_id] = asyncio.ensure_future(self._stopped(call_id, self._waiting.pop(call_id)))
        self._session.abort(call_id)

    def abort_all(self) -> None:
        """Stop every job; those that wait are dropped without an answer."""
        self._waiting.clear()
        for call_id in self._running:
            self._session.abort(call_id)

    async def idle(self) -> None:
        """Wait until every job has been answered."""
        while tasks := [*self._running.values(), *([self._filling] if self._filling else [])]:
            await asyncio.wait(tasks)

    def _fill(self) -> None:
        free = self._places - len(self._running)
        if self._filling is None and self._waiting and free > 0:
            self._filling = asyncio.ensure_future(self._begin_some(list(islice(self._waiting.items(), free))))
            self._filling.add_done_callback(self._filled)

    def _filled(self, _: asyncio.Task[None]) -> None:
        self._filling = None
        self._fill()

    async def _begin_some(self, jobs: Sequence[tuple[int, object]]) -> None:
        prepared = await asyncio.to_thread(lambda: [self._session.prepare(fields) for _, fields in jobs])
        for (call_id, fields), job in zip(jobs, prepared, strict=True):
            if self._waiting.get(call_id) is fields:  # else it was aborted meanwhile
                del self._waiting[call_id]
                self._begin(call_id, job)

    def _begin(self, call_id: int, job: PreparedJob | Exception) -> None:
        task = self._session.begin(call_id, job)
        self._running[call_id] = task
        task.add_done_callback(lambda _: self._ended(call_id))

    def _ended(self, call_id: int) -> None:
        del self._running[call_id]
        self._fill()

    async def _stopped(self, call_id: int, fields: object) -> None:
        """Answer a job that was stopped before it began as one that was stopped in its first step."""
        job = await asyncio.to_thread(self._session.prepare, fields)
        self._begin(call_id, job)
        self._session.abort(call_id)
