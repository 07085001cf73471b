"""`/v1/files` and `/v1/batches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.errors import InvalidArgument
from pageloom.worker.api.call import Fields
from pageloom.worker.batches.batch_table import Batch, Outcome
from pageloom.worker.batches.disk import Disk
from pageloom.worker.batches.input import LineError, parse_batch
from pageloom.worker.batches.runner import BatchRunner
from pageloom.worker.bodies import body_chunks, read_json
from pageloom.worker.config import Limits
from pageloom.worker.errors import UnsupportedMediaType
from pageloom.worker.responses import JsonResponse
from pageloom.worker.text_service import ENDPOINTS, TextService

MOST_METADATA = 16
MOST_LISTED = 100


class BatchRoutes:
    """The handlers, over the database and the runner."""

    def __init__(self, disk: Disk, runner: BatchRunner, service: TextService) -> None:
        self._disk = disk
        self._runner = runner
        self._service = service
        self._limits = service.limits

    def routes(self) -> list[Route]:
        return [
            Route("/v1/files", self.add_file, methods=["POST"]),
            Route("/v1/files", self.list_files, methods=["GET"]),
            Route("/v1/files/{id}", self.get_file, methods=["GET"]),
            Route("/v1/files/{id}", self.delete_file, methods=["DELETE"]),
            Route("/v1/files/{id}/content", self.get_content, methods=["GET"]),
            Route("/v1/batches", self.add_batch, methods=["POST"]),
            Route("/v1/batches", self.list_batches, methods=["GET"]),
            Route("/v1/batches/{id}", self.get_batch, methods=["GET"]),
            Route("/v1/batches/{id}/cancel", self.cancel_batch, methods=["POST"]),
        ]

    async def add_file(self, request: Request) -> Response:
        filename, purpose, content = await read_upload(request, self._limits)
        file = await self._disk.run(lambda: self._disk.files.add(filename, purpose, content))
        return JsonResponse(file.to_fields())

    async def list_files(self, request: Request) -> Response:
        files = await self._disk.run(self._disk.files.all)
        return _list([file.to_fields() for file in files], has_more=False)

    async def get_file(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        file = await self._disk.run(lambda: self._disk.files.get(file_id))
        return JsonResponse(file.to_fields())

    async def delete_file(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        await self._disk.run(lambda: self._disk.files.delete(file_id))
        return JsonResponse({"id": file_id, "object": "file", "deleted": True})

    async def get_content(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        content = await self._disk.run(lambda: self._content(file_id))
        return Response(content, media_type="application/jsonl")

    async def add_batch(self, request: Request) -> Response:
        body = Fields(await read_json(request, self._limits.body_bytes, self._limits.body_seconds))
        file_id = body.take("input_file_id", str, "")
        endpoint = body.take("endpoint", str, "")
        body.take("completion_window", str, "24h")
        metadata = body.take("metadata", dict, {})
        body.finish()
        if endpoint not in ENDPOINTS:
            raise InvalidArgument(f"endpoint is {endpoint!r:.60}; there is {', '.join(ENDPOINTS)}", param="endpoint")
        if len(metadata) > MOST_METADATA or not all(isinstance(value, str) for value in metadata.values()):
            raise InvalidArgument(f"metadata has at most {MOST_METADATA} entries, each a text", param="metadata")
        batch = await self._disk.run(lambda: self._add(file_id, endpoint, metadata))
        self._runner.look_again()
        return JsonResponse(batch.to_fields())

    async def list_batches(self, request: Request) -> Response:
        text = request.query_params.get("limit", "20")
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_LISTED):
            raise InvalidArgument(f"limit is {text!r:.20}; 1 to {MOST_LISTED} is allowed", param="limit")
        limit, after = int(text), request.query_params.get("after")
        batches = await self._disk.run(lambda: self._disk.batches.newest(limit + 1, after))
        return _list([batch.to_fields() for batch in batches[:limit]], has_more=len(batches) > limit)

    async def get_batch(self, request: Request) -> Response:
        batch_id = request.path_params["id"]
        batch = await self._disk.run(lambda: self._disk.batches.get(batch_id))
        return JsonResponse(batch.to_fields())

    async def cancel_batch(self, request: Request) -> Response:
        return JsonResponse((await self._runner.cancel(request.path_params["id"])).to_fields())

    def _add(self, file_id: str, endpoint: str, metadata: dict[str, str]) -> Batch:
        model = self._service.name
        parsed = parse_batch(self._disk.files.content(file_id), endpoint, model, self._limits.batch_rows)
        errors = [line for line in parsed if isinstance(line, LineError)]
        rows = [line for line in parsed if not isinstance(line, LineError)]
        return self._disk.batches.add(file_id, endpoint, model, metadata, rows, errors)

    def _content(self, file_id: str) -> bytes:
        outcomes: tuple[Outcome, ...] = ("output", "error")
        for outcome in outcomes:
            prefix = f"file-{outcome}-"
            if file_id.startswith(prefix):
                return self._disk.batches.results(file_id.removeprefix(prefix), outcome)
        return self._disk.files.content(file_id)


def _list(data: Sequence[dict[str, Any]], *, has_more: bool) -> Response:
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return JsonResponse({"object": "list", "data": data, "has_more": has_more, **ends})


async def read_upload(request: Request, limits: Limits) -> tuple[str, str, bytes]:
    """(file name, purpose, content) of a form. The name is a label alone: nothing is opened by it.

    Raises as `read_body` does, `UnsupportedMediaType` for what is no form, `InvalidArgument` for another form.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise UnsupportedMediaType("a file is sent as a form: Content-Type multipart/form-data")
    chunks = body_chunks(request, limits.file_bytes, limits.body_seconds)
    try:
        form = await MultiPartParser(request.headers, chunks, max_files=1, max_fields=8).parse()
    except (MultiPartException, FormParserError) as error:
        raise InvalidArgument(f"the form cannot be read: {error}") from error
    try:
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile):
            raise InvalidArgument("the form has no file", param="file")
        if purpose != "batch":
            raise InvalidArgument(f"purpose is {purpose!r:.60}; it has to be batch", param="purpose")
        return file.filename or "", purpose, await file.read()
    finally:
        await form.close()
