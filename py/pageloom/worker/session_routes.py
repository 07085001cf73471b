"""`/v1/session`: the page's own engine, for a page that has chosen this worker in place of its tab.

A page opens one stream for all it asks: browsers keep only six connections to a server. Its first event is `session`,
its key, with `model`; each later one is an array of replies as `web/src/protocol.js` has them. Calls are posted to the
session; it ends with its stream.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.errors import InvalidArgument
from pageloom.worker.bodies import read_json
from pageloom.worker.config import Limits
from pageloom.worker.errors import NotFound, QueueFull, Stopping
from pageloom.worker.event_stream import EventStream, json_event
from pageloom.worker.model_thread import ModelThread
from pageloom.worker.page_session import PageSession

MOST_SESSIONS = 16


class SessionRoutes:
    """The sessions of all pages."""

    def __init__(self, name: str, model: ModelThread, limits: Limits) -> None:
        """`name` is what clients call the model."""
        self._name = name
        self._model = model
        self._limits = limits
        self._sessions: dict[str, PageSession] = {}
        self._stopping = False

    def routes(self) -> list[Route]:
        return [
            Route("/v1/session", self._open, methods=["POST"]),
            Route("/v1/session/{key}", self._call, methods=["POST"]),
        ]

    def stop(self) -> None:
        """Open no more, and end each session once its jobs have been answered."""
        self._stopping = True
        for session in self._sessions.values():
            session.stop()

    def abort(self) -> None:
        """End every session and its jobs."""
        for session in list(self._sessions.values()):
            session.abort()

    async def _open(self, request: Request) -> Response:
        if self._stopping:
            raise Stopping("the worker is stopping; ask again once it runs")
        if len(self._sessions) >= MOST_SESSIONS:
            raise QueueFull(f"{MOST_SESSIONS} pages use this worker already; close one of them")
        key = secrets.token_urlsafe(12)
        # Everybody sees the names of requests, so the key is not in them.
        session = self._model.page_session(secrets.token_urlsafe(6), lambda: self._sessions.pop(key, None))
        self._sessions[key] = session
        return EventStream(self._events(key, session), session)

    async def _events(self, key: str, session: PageSession) -> AsyncIterator[bytes]:
        described = await session.describe()
        yield json_event({"session": key, "prefix": session.prefix, "model": {"name": self._name, **described}})
        async for replies in session.replies():
            yield b"data: " + replies.encode() + b"\n\n"

    async def _call(self, request: Request) -> Response:
        session = self._sessions.get(request.path_params["key"])
        if session is None:
            raise NotFound("that session has ended; open another with POST /v1/session")
        body = await read_json(request, self._limits.body_bytes, self._limits.body_seconds)
        calls = body.get("calls")
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise InvalidArgument("calls is an array of objects", param="calls")
        await session.call(calls)
        return Response(status_code=204)
