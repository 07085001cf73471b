"""What does not come in time is given up: bodies, and answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from pageloom.engine.events import FinishEvent, TokenEvent, Usage
from pageloom.worker.bodies import read_body
from pageloom.worker.errors import BodyTooSlow, TimedOut
from pageloom.worker.model_thread import Generation


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_body_that_does_not_come_in_time_is_given_up() -> None:
    began = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> Any:
        return next(began, None) or await never()

    request = Request({"type": "http", "headers": [], "method": "POST"}, receive)
    with pytest.raises(BodyTooSlow, match=r"within 0\.01 seconds"):
        await read_body(request, 100, seconds=0.01)


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
