"""The application: what the routes share, and all of them."""

from __future__ import annotations

import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.errors import PageloomError
from pageloom.worker.batches.disk import Disk
from pageloom.worker.batches.routes import BatchRoutes
from pageloom.worker.batches.runner import BatchRunner
from pageloom.worker.config import Access, Limits
from pageloom.worker.engine_routes import engine_routes
from pageloom.worker.errors import ModelNotFound
from pageloom.worker.guard import guards
from pageloom.worker.metrics import CountResponses, Metrics
from pageloom.worker.model_thread import ModelThread
from pageloom.worker.operator_routes import operator_routes
from pageloom.worker.operator_thread import OperatorThread
from pageloom.worker.responses import JsonResponse, error_response, on_http_error, on_pageloom_error
from pageloom.worker.session_routes import SessionRoutes
from pageloom.worker.text_routes import CLIENT_CLOSED_REQUEST, text_routes
from pageloom.worker.text_service import TextService
from pageloom.worker.tool_process import ToolProcesses
from pageloom.worker.tool_routes import tool_routes


class Worker:
    """Made and closed on the server's event loop; `app` is the ASGI application."""

    def __init__(self, name: str, backend: str, model: ModelThread, disk: Disk, access: Access, limits: Limits) -> None:
        """`name` is what clients call the model, which runs on `backend`. `model` and `disk` belong to the worker from
        now on."""
        self._name = name
        self._backend = backend
        self._model = model
        self._disk = disk
        self._metrics = Metrics()
        self._operators = OperatorThread(limits.operator_queue)
        self._tools = ToolProcesses()
        self._created = int(time.time())
        self._sessions = SessionRoutes(name, model, limits)
        service = TextService(name, model, limits)
        # Half of a step's rows, so that a chat finds one beside any batch.
        self._runner = BatchRunner(disk, service, max(1, model.max_running // 2))
        self.app = Starlette(
            routes=[
                Route("/healthz", self._health, methods=["GET"]),
                Route("/metrics", self._scrape, methods=["GET"]),
                Route("/v1/models", self._list_models, methods=["GET"]),
                Route("/v1/models/{name}", self._get_model, methods=["GET"]),
                *text_routes(service),
                *BatchRoutes(disk, self._runner, service).routes(),
                *operator_routes(self._operators, limits),
                *tool_routes(self._tools, limits),
                *engine_routes(name, backend, model),
                *self._sessions.routes(),
            ],
            middleware=[Middleware(CountResponses, metrics=self._metrics), *guards(access)],
            exception_handlers={
                PageloomError: on_pageloom_error,
                HTTPException: on_http_error,
                ClientDisconnect: _on_disconnect,
                Exception: on_pageloom_error,
            },
        )

    async def stop(self) -> None:
        """Take nothing new and set batches aside; what clients wait for goes on."""
        self._model.refuse_new()
        self._tools.stop()
        self._sessions.stop()
        await self._runner.close()

    def abort(self) -> None:
        """End what clients wait for; each is told so."""
        self._model.abort_all()
        self._tools.abort()
        self._sessions.abort()

    async def close(self) -> None:
        """Abort everything and free everything. Batches go on with the next worker of this state."""
        await self._runner.close()
        await self._tools.close()
        await self._operators.close()
        await self._model.close()
        await self._disk.close()

    async def _health(self, request: Request) -> Response:
        if self._model.lost is not None:
            return error_response(self._model.lost)
        return JsonResponse({"status": "ok", "model": self._name, "backend": self._backend})

    async def _scrape(self, request: Request) -> Response:
        return Response(await self._metrics.render(self._model), media_type=CONTENT_TYPE_LATEST)

    async def _list_models(self, request: Request) -> Response:
        return JsonResponse({"object": "list", "data": [self._model_fields()]})

    async def _get_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self._name:
            raise ModelNotFound(f"there is no model {name!r}; this worker serves {self._name!r}", param="model")
        return JsonResponse(self._model_fields())

    def _model_fields(self) -> dict[str, object]:
        return {
            "id": self._name,
            "object": "model",
            "created": self._created,
            "owned_by": "pageloom",
            "context_length": self._model.context_length,
            "max_running": self._model.max_running,
        }


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
