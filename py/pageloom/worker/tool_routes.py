"""`/v1/checks` and `/v1/benches`: the operators held against their reference, and measured, on this machine.

Each is a stream of server-sent events. A check's are `report` with `total`, how many reports are expected, and at the
end `adapter` with `counts`; a bench's are `line`, of the table that `pageloom bench` prints, and at the end `result`.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
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

    async def check(request: Request) -> Response:
        arguments = check_arguments(await read_json(request, limits.body_bytes, limits.body_seconds))
        run = await tools.start(arguments)
        return EventStream(_check_events(run), run)

    async def bench(request: Request) -> Response:
        arguments = bench_arguments(await read_json(request, limits.body_bytes, limits.body_seconds))
        folder = tempfile.TemporaryDirectory(prefix="pageloom-")
        result = Path(folder.name) / "result.json"
        try:
            run = await tools.start([*arguments, f"--json={result}"])
        except BaseException:
            folder.cleanup()
            raise
        return EventStream(_bench_events(run, result, folder), run)

    return [Route("/v1/checks", check, methods=["POST"]), Route("/v1/benches", bench, methods=["POST"])]


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
    return ["bench", f"--backend={_backend(body, ('backend', 'quick')).name}", *_quick(body)]


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


async def _check_events(run: ToolProcess) -> AsyncIterator[bytes]:
    is_complete = False
    try:
        async for line in run.lines():
            told = json.loads(line)
            is_complete = "counts" in told
            yield json_event(told)
    except Exception as error:
        if not is_complete:  # failed cases end it with an error code too, and were told of
            yield error_event(error)
            return
    yield DONE


async def _bench_events(
    run: ToolProcess, result: Path, folder: tempfile.TemporaryDirectory[str]
) -> AsyncIterator[bytes]:
    """The folder, in which the command leaves `result`, is removed at the end."""
    try:
        async for line in run.lines():
            yield json_event({"line": line})
        yield json_event({"result": json.loads(await asyncio.to_thread(result.read_text, "utf-8"))})
        yield DONE
    except Exception as error:
        yield error_event(error)
    finally:
        folder.cleanup()
