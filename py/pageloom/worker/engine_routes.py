"""`/v1/engine`: what runs the model, how it is doing, and which request owns which page."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.worker.model_thread import ModelThread
from pageloom.worker.responses import JsonResponse


def engine_routes(name: str, backend: str, model: ModelThread) -> list[Route]:
    """`name` and `backend` are those of the model."""

    async def describe(request: Request) -> Response:
        stats = await model.stats()
        return JsonResponse(
            {
                "model": name,
                "backend": backend,
                "device": model.device_name,
                "context_length": model.context_length,
                "warnings": model.warnings,
                "explain": model.explain(),
                "stats": {**asdict(stats), "tokens_per_second": stats.tokens_per_second},
            }
        )

    async def snapshot(request: Request) -> Response:
        views = await model.snapshot()
        return await asyncio.to_thread(lambda: JsonResponse(_fields(views)))

    return [
        Route("/v1/engine", describe, methods=["GET"]),
        Route("/v1/engine/snapshot", snapshot, methods=["GET"]),
    ]


def _fields(value: Any) -> Any:
    """Views as JSON has them. `dataclasses.asdict` copies every value, and takes far longer for a pool of blocks."""
    if isinstance(value, tuple):
        return [_fields(entry) for entry in value]
    if hasattr(value, "__slots__"):
        return {name: _fields(getattr(value, name)) for name in value.__slots__}
    return value
