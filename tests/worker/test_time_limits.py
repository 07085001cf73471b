"""What does not come in time is given up: headers, bodies, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request

from pageloom.engine.events import FinishEvent, TokenEvent, Usage
from pageloom.worker.bodies import read_body
from pageloom.worker.errors import BodyTooSlow, TimedOut
from pageloom.worker.http_protocol import timed_protocol
from pageloom.worker.model_thread import Generation
from pageloom.worker.server import bind


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_body_that_does_not_come_in_time_is_given_up() -> None:
    began = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        return next(began, None) or await never()

    request = Request({"type": "http", "headers": [], "method": "POST"}, receive)
    with pytest.raises(BodyTooSlow, match=r"within 0\.01 seconds"):
        await read_body(request, 100, seconds=0.01)


@asynccontextmanager
async def connection(header_seconds: float) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that answers every request at once, without its body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    protocol = timed_protocol(header_seconds)
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, port=0, lifespan="off", log_config=None))
    listener = bind(0)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
    ],
    ids=["nothing", "headers", "second headers", "body of an answered request"],
)
async def test_a_client_that_dribbles_is_cut(said: bytes) -> None:
    async with connection(header_seconds=0.2) as (reader, writer):
        writer.write(said)
        answered = b""

        async def dribble() -> None:
            while not reader.at_eof():
                writer.write(b"X" if said else b"")
                await asyncio.sleep(0.01)

        dribbling = asyncio.create_task(dribble())
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while piece := await reader.read(1000):
                    answered += piece
        dribbling.cancel()
        assert answered.count(b"204") == said.count(b"\r\n\r\n")


async def test_a_client_in_time_keeps_its_connection() -> None:
    async with connection(header_seconds=60) as (reader, writer):
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"204" in await reader.readuntil(b"\r\n\r\n")


async def test_an_answer_ends_at_its_deadline_after_what_came_before_it() -> None:
    generation = Generation(1, asyncio.get_running_loop().time() + 0.01, abort=lambda: None)
    generation.deliver(0, TokenEvent(5, "a"))
    events = aiter(generation)
    assert await anext(events) == (0, TokenEvent(5, "a"))
    with pytest.raises(TimedOut):
        await anext(events)


async def test_an_answer_in_time_ends_by_itself() -> None:
    generation = Generation(2, asyncio.get_running_loop().time() + 60, abort=lambda: None)
    end = FinishEvent("stop", Usage(1, 1, 0))
    for index in (1, 0):
        generation.deliver(index, end)
    assert [index async for index, _ in generation] == [1, 0]
