"""HTTP as uvicorn speaks it, for clients that take no longer than they may."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """Cuts a connection on which no request's headers are complete in time.

    uvicorn bounds how long a connection may be silent after a response, but not one that says a byte now and then: of
    its first headers, of its next ones, or of a body that was answered before its end.
    """

    header_seconds: float

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()  # which may begin with the next request

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._end_wait()
        self._waiting = self.loop.call_later(self.header_seconds, self._cut)

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _cut(self) -> None:
        self.transport.abort()


def timed_protocol(header_seconds: float) -> type[TimedProtocol]:
    """The protocol with its patience, from the connection or the last response to the end of the next headers."""
    return type("TimedProtocol", (TimedProtocol,), {"header_seconds": header_seconds})
