"""A page's session with the model: the tab's own protocol, with the engine on the model's thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from pageloom.errors import CapacityExceeded, InvalidArgument, shown
from pageloom.language_model import LanguageModel
from pageloom.session import Session
from pageloom.worker.errors import Stopping
from pageloom.worker.loop_thread import LoopThread
from pageloom.worker.page_jobs import PageJobs

T = TypeVar("T")
METHODS = ("generate", "abort", "watch", "stats", "snapshot", "countTokens")
MOST_JOBS = 10_000
"""That one page may have waiting."""
MOST_UNREAD = 2**26
"""Characters of replies that wait for a page to read them; with more its session ends."""
MOST_LOOKS = 100
"""Calls in one message that are no jobs: the model waits while they are answered."""


class PageSession:
    """One page. Its replies are iterated over once, on the server's loop; its calls come from there too."""

    def __init__(self, name: str, thread: LoopThread, model: LanguageModel, forget: Callable[[], object]) -> None:
        """`name` tells its requests from those of others in the engine; `forget` is called once it is aborted."""
        self.prefix = f"{name}/"
        self._thread = thread
        self._forget = forget
        self._server_loop = asyncio.get_running_loop()
        self._replies: asyncio.Queue[str | None] = asyncio.Queue()
        self._unread = 0
        self._session = Session(model, self._send, prefix=self.prefix)
        self._jobs = PageJobs(self._session, places=model.runner.limits.max_sequences)
        self._stopping = False
        self._aborted = False

    async def describe(self) -> dict[str, Any]:
        """The model and what computes it, as `LoadedModel` of `web/src/protocol.js` has them."""
        described: dict[str, Any] = json.loads(await self._on_thread(self._session.describe))
        return described

    async def replies(self) -> AsyncIterator[str]:
        """Arrays of replies, as JSON, until the session ends."""
        while (text := await self._replies.get()) is not None:
            self._unread -= len(text)
            yield text

    async def call(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Take calls of `web/src/protocol.js`; each is answered among the replies. Raises `InvalidArgument`."""
        for call in calls:
            if not isinstance(call.get("id"), int) or not isinstance(call.get("params"), dict):
                raise InvalidArgument("a call has an id, a whole number, and params, an object", param="calls")
            method = call.get("method")
            if method not in METHODS:
                raise InvalidArgument(f"there is no method {shown(method)}", param="calls")
            if method == "abort" and not isinstance(call["params"].get("id"), int):
                raise InvalidArgument("what is aborted has an id, a whole number", param="calls")
        if sum(call["method"] != "generate" for call in calls) > MOST_LOOKS:
            raise InvalidArgument(f"a message has at most {MOST_LOOKS} calls besides jobs", param="calls")
        await self._thread.run(self._take(calls))

    def stop(self) -> None:
        """Take no jobs any more, and end once those that there are have been answered."""
        self._end(self._jobs.idle)

    def abort(self) -> None:
        """End every job, and the session. Safe to repeat."""
        self._aborted = True
        self._forget()

        async def abort() -> None:
            self._jobs.abort_all()
            await self._jobs.idle()

        self._end(abort)

    def _end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the replies after `work` on the model's thread."""
        self._stopping = True
        ended = asyncio.run_coroutine_threadsafe(work(), self._thread.loop)
        ended.add_done_callback(lambda _: self._send(None))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return await self._thread.run(run())

    async def _take(self, calls: Sequence[Mapping[str, Any]]) -> None:
        jobs = [(call["id"], call["params"]) for call in calls if call["method"] == "generate"]
        if jobs and self._stopping:
            raise Stopping("the worker is stopping; ask again once it runs")
        if len(self._jobs) + len(jobs) > MOST_JOBS:
            raise CapacityExceeded(f"{len(jobs)} more jobs at once; a page may have {MOST_JOBS}")
        ids = {call_id for call_id, _ in jobs}
        if len(ids) < len(jobs) or any(call_id in self._jobs for call_id in ids):
            raise InvalidArgument("two jobs have the same id", param="calls")
        self._jobs.add(jobs)
        for call in calls:
            if answer := await self._look(call["method"], call["params"]):
                self._send(json.dumps([{"id": call["id"], **answer}]))
                await asyncio.sleep(0)  # a step goes between two of them

    async def _look(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to a call that is no job; None where it has none now."""
        match method:
            case "abort":
                self._jobs.abort(params["id"])
                return {"result": None}
            case "stats":
                return {"result": json.loads(self._session.stats())}
            case "snapshot":
                return {"result": json.loads(self._session.snapshot())}
            case "countTokens":
                counted: dict[str, Any] = json.loads(
                    await asyncio.to_thread(self._session.count_tokens, json.dumps(params.get("fields")))
                )
                return counted if "error" in counted else {"result": counted}
        return None

    def _send(self, replies: str | None) -> None:
        """Pass replies on from the model's thread; None is the end of them."""
        self._server_loop.call_soon_threadsafe(self._queue, replies)

    def _queue(self, replies: str | None) -> None:
        self._unread += len(replies or "")
        self._replies.put_nowait(replies)
        if self._unread > MOST_UNREAD and not self._aborted:
            self.abort()
