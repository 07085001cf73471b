"""Server-sent events, and what makes them, ended together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pageloom.errors import PageloomError
from pageloom.worker.responses import encode_json, internal_error

DONE = b"data: [DONE]\n\n"
"""The last event of a stream that came to its end, as OpenAI's have it."""


class Abortable(Protocol):
    """What a stream tells of."""

    def abort(self) -> None:
        """End it. Safe to repeat, and after the end."""
        ...


class EventStream(StreamingResponse):
    """Events of a source, which ends with the response, even with one that nobody began to read."""

    def __init__(self, events: AsyncIterator[bytes], source: Abortable) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._source.abort()


def json_event(content: object) -> bytes:
    """An event with JSON in it. Raises `ValueError` for numbers that JSON does not have."""
    return b"data: " + encode_json(content) + b"\n\n"


def error_event(error: Exception) -> bytes:
    """The error object, as the last event of a stream that ends early. A bug is logged."""
    known = error if isinstance(error, PageloomError) else internal_error(error)
    return json_event(known.to_openai())
