"""Bodies of requests: read up to a limit of bytes and of time, and no further."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, NoReturn

from starlette.requests import Request

from pageloom.errors import InvalidArgument
from pageloom.worker.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType


async def read_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """The whole body. Raises `BodyTooLarge`, before a byte is read where its length is told; `BodyTooSlow`."""
    body = bytearray()
    async for chunk in body_chunks(request, max_bytes, seconds):
        body += chunk
    return bytes(body)


async def body_chunks(request: Request, max_bytes: int, seconds: float) -> AsyncGenerator[bytes, None]:
    """The body as it comes. Raises as `read_body` does."""
    told = request.headers.get("content-length", "0")
    if int(told) > max_bytes:
        raise BodyTooLarge(f"the body has {told} bytes; at most {max_bytes} are taken here")
    deadline = asyncio.get_running_loop().time() + seconds
    chunks = request.stream()
    size = 0
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise BodyTooSlow(f"the body did not arrive within {seconds:g} seconds") from error
        size += len(chunk)
        if size > max_bytes:
            raise BodyTooLarge(f"the body has more than {max_bytes} bytes; at most that many are taken here")
        yield chunk


async def read_json(request: Request, max_bytes: int, seconds: float) -> dict[str, Any]:
    """The JSON object that is the body.

    Raises as `read_body` does, `UnsupportedMediaType` for another Content-Type, `InvalidArgument` for another body.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType(
            f"the Content-Type is {media_type!r}; send the header Content-Type: application/json"
        )
    return parse_json_object(await read_body(request, max_bytes, seconds))


def parse_json_object(text: bytes | str) -> dict[str, Any]:
    """The object that `text` is, its strings valid Unicode. Raises `InvalidArgument` for any other text."""
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(parsed, ensure_ascii=False).encode()  # an escape may be half of a surrogate pair
    except RecursionError as error:
        raise InvalidArgument("the JSON is nested too deep") from error
    except ValueError as error:
        raise InvalidArgument(f"this is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise InvalidArgument("a JSON object is needed, {…}")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
