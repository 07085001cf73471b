"""The routes that make text: answered whole or as a stream, and ended with the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.worker.api.answers import Answer
from pageloom.worker.bodies import read_json
from pageloom.worker.event_stream import EventStream
from pageloom.worker.responses import JsonResponse
from pageloom.worker.text_service import ENDPOINTS, TextService

T = TypeVar("T")
CLIENT_CLOSED_REQUEST = 499
"""Nobody is there to read it; logs of other servers use the number for the same."""


def text_routes(service: TextService) -> list[Route]:
    """A POST route for each endpoint."""

    def route(endpoint: str) -> Route:
        async def respond(request: Request) -> Response:
            return await _respond(service, endpoint, request)

        return Route(endpoint, respond, methods=["POST"])

    return [route(endpoint) for endpoint in ENDPOINTS]


async def _respond(service: TextService, endpoint: str, request: Request) -> Response:
    limits = service.limits
    body = await read_json(request, limits.body_bytes, limits.body_seconds)
    deadline = asyncio.get_running_loop().time() + limits.request_seconds
    call = service.parse(endpoint, body)
    if call.stream:
        generation = await service.model.submit(call.jobs, deadline)
        return EventStream(Answer(call, service.name).events(generation), generation)
    answer = await while_connected(request, service.answer(call, deadline))
    return Response(status_code=CLIENT_CLOSED_REQUEST) if answer is None else JsonResponse(answer)


async def while_connected(request: Request, work: Awaitable[T]) -> T | None:
    """What `work` gives, or None where the client goes away before; `work` is cancelled then."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, watching):
            task.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
