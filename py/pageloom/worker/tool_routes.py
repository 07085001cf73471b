"""`/v1/checks` and `/v1/benches`: the operators held against their reference, and measured, on this machine.

Each is a stream of server-sent events. A check's are `report` with `total`, how many reports are expected, and at the
end `adapter` with `counts`; a bench's are `rows`, the measurements of a shape, with `total`, how many shapes there are,
and at the end `result`.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.errors import InvalidArgument, NotSupported, shown
from pageloom.worker.backends import BACKENDS, Backend, find_backend
from pageloom.worker.bodies import read_json
from pageloom.worker.config import Limits
from pageloom.worker.event_stream import DONE, EventStream, error_event, json_event
from pageloom.worker.tool_process import ToolProcess, ToolProcesses

MOST_COMPILERS = 8
"""Processes of a check on CUDA, most of whose time goes into compiling."""


def tool_routes(tools: ToolProcesses, limits: Limits) -> list[Route]:
    """A route for each of the two."""

    def route(path: str, arguments: Callable[[Mapping[str, Any]], list[str]]) -> Route:
        async def answer(request: Request) -> Response:
            run = await tools.start(arguments(await read_json(request, limits.body_bytes, limits.body_seconds)))
            return EventStream(_events(run), run)

        return Route(path, answer, methods=["POST"])

    return [route("/v1/checks", check_arguments), route("/v1/benches", bench_arguments)]


def check_arguments(body: Mapping[str, Any]) -> list[str]:
    """The command line of a check. Raises `InvalidArgument`, and `NotSupported` for an operator that is not there."""
    backend = _backend(body, ("backend", "operator", "quick", "case", "tier"))
    arguments = ["check", "--lines", f"--backend={backend.name}"]
    operator = _text(body, "operator")
    if operator is not None:
        if operator not in backend.operators:
            raise NotSupported(
                f"{shown(operator)} is not on {backend.name}; there is {', '.join(backend.operators)}", param="operator"
            )
        arguments.append(f"--operator={operator}")
    if (case := _text(body, "case")) is not None:
        arguments.append(f"--case={case}")
    tier = _text(body, "tier")
    arguments.append("--fastest" if tier is None else f"--tier={tier}")
    if backend.name == "cuda":
        arguments.append(f"--jobs={min(MOST_COMPILERS, os.cpu_count() or 1)}")
    return arguments + _quick(body)


def bench_arguments(body: Mapping[str, Any]) -> list[str]:
    """The command line of a bench. Raises `InvalidArgument`."""
    arguments = ["bench", "--lines", f"--backend={_backend(body, ('backend', 'quick', 'shape')).name}"]
    if (shape := _text(body, "shape")) is not None:
        arguments.append(f"--shape={shape}")
    return arguments + _quick(body)


def _backend(body: Mapping[str, Any], known: Collection[str]) -> Backend:
    for name in body:
        if name not in known:
            raise InvalidArgument(f"unknown field {shown(name)}; there is {', '.join(known)}", param=name)
    return find_backend(_text(body, "backend") or BACKENDS[0].name)


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or not value or "\0" in value):
        raise InvalidArgument(f"{name} is {shown(value)}; it has to be a text", param=name)
    return value


def _quick(body: Mapping[str, Any]) -> list[str]:
    quick = body.get("quick", True)
    if not isinstance(quick, bool):
        raise InvalidArgument(f"quick is {shown(quick)}; it has to be true or false", param="quick")
    return ["--quick"] if quick else []


async def _events(run: ToolProcess) -> AsyncIterator[bytes]:
    """What the command says, line by line; `counts` or `result` is the last of it."""
    is_complete = False
    try:
        async for line in run.lines():
            told = json.loads(line)
            is_complete = "counts" in told or "result" in told
            yield json_event(told)
    except Exception as error:
        if not is_complete:  # failed cases end it with an error code too, and were told of
            yield error_event(error)
            return
    yield DONE
