"""The HTTP server on the loopback address, from its port to its graceful end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from pageloom.errors import InvalidArgument, NotSupported
from pageloom.language_model import LanguageModel
from pageloom.worker.app import Worker
from pageloom.worker.batches.disk import Disk
from pageloom.worker.config import Access, Limits
from pageloom.worker.http_protocol import timed_protocol
from pageloom.worker.model_thread import ModelThread

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_EVENT_SECONDS = 5.0
"""For the error that ends an aborted answer to reach its client."""


@dataclass(frozen=True, slots=True)
class Service:
    """What is served: `name` is the model's for clients, `backend` what it runs on, `state` the file of batches; port 0
    takes a free one."""

    name: str
    backend: str
    load: Callable[[], Awaitable[LanguageModel]]
    state: Path
    port: int
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)


async def serve(service: Service, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the base URL once requests are answered.

    Raises `NotSupported` where the port is taken, `InvalidArgument` for a port or state file that cannot be, and what
    `service.load` raises.
    """
    listener = bind(service.port)
    try:
        disk = Disk(service.state)
        try:
            model = await ModelThread.load(service.load, service.limits.queue)
        except BaseException:
            await disk.close()
            raise
        worker = Worker(service.name, service.backend, model, disk, service.access, service.limits)
        try:
            host, port = listener.getsockname()
            server = _Server(worker, service.limits, lambda: on_ready(f"http://{host}:{port}"))
            await server.serve(sockets=[listener])
        finally:
            await worker.close()
    finally:
        listener.close()


def bind(port: int) -> socket.socket:
    """A socket on 127.0.0.1; who connects waits until the server runs. Raises as `serve` does."""
    if not 0 <= port <= 65535:
        raise InvalidArgument(f"the port is {port}; it is 0 (a free one) to 65535", param="port")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if sys.platform != "win32":  # where it would let a second server take the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise NotSupported(f"cannot listen on port {port}: {error.strerror}; choose another", param="port") from error
    return listener


class _Server(uvicorn.Server):
    """Stops in order: nothing new, then what runs has its time to end, then it is aborted and told so."""

    def __init__(self, worker: Worker, limits: Limits, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                worker.app,
                http=timed_protocol(limits.header_seconds),
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=limits.connections,
                timeout_graceful_shutdown=round(limits.grace_seconds + _LAST_EVENT_SECONDS),
            )
        )
        self._worker = worker
        self._grace_seconds = limits.grace_seconds
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._worker.stop()
        aborting = asyncio.get_running_loop().call_later(self._grace_seconds, self._worker.abort)
        await super().shutdown(sockets)
        aborting.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's own, does not raise the signal again: this end is the command's normal one."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
