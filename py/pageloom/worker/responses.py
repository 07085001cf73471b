"""Answers that every path gives alike: JSON, and errors as OpenAI's error objects."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pageloom.errors import PageloomError
from pageloom.worker.errors import (
    BodyTooLarge,
    BodyTooSlow,
    MethodNotAllowed,
    NotFound,
    QueueFull,
    Stopping,
    Unauthorized,
)

log = logging.getLogger("pageloom.worker")
RETRY_SECONDS = 1
"""After which a client that was turned away may try again."""


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def encode_json(content: object) -> bytes:
    """Compact JSON in UTF-8. Raises `ValueError` for numbers that JSON does not have."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def error_response(error: PageloomError) -> Response:
    """The error object with its status and the headers that go with it."""
    headers = {}
    if isinstance(error, QueueFull | Stopping):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, BodyTooLarge | BodyTooSlow):
        headers["Connection"] = "close"  # the rest of the body is still to come, and nobody reads it
    return JsonResponse(error.to_openai(), error.http_status, headers)


def internal_error(failure: BaseException) -> PageloomError:
    """What a client is told of a bug; the log has it in full."""
    log.error("a request failed", exc_info=failure)
    return PageloomError(f"the worker failed: {type(failure).__name__}; its log says more")


async def on_pageloom_error(request: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, PageloomError) else internal_error(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Errors of the router: no such path, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return error_response(NotFound(f"there is no {request.url.path}"))
    if status == 405:
        return error_response(MethodNotAllowed(f"{request.url.path} does not take {request.method}"))
    return await on_pageloom_error(request, error)
