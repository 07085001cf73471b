"""`/v1/ops`: one operator on one backend, with tensors as safetensors.

The request's tensors go by the operator's ONNX input names. Its metadata has `spec`, the attributes as a JSON object;
and may have `backend`, `tier` (or else the fastest that can), for PagedAttention `log_sum_exp` (true or false) and for
ONNX Attention `outputs` (a JSON array of the optional ones). The response's tensors go by the output names, and its
metadata has `explain`: the tier, and why no faster one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from safetensors import SafetensorError, deserialize
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pageloom.attention.tensors import Tensor, TensorInfo
from pageloom.attention.vectors import SAFETENSORS_NAMES, SPECS, write_safetensors
from pageloom.errors import CapacityExceeded, InvalidArgument
from pageloom.worker.backends import BACKENDS
from pageloom.worker.bodies import parse_json_object, read_body
from pageloom.worker.config import Limits
from pageloom.worker.errors import NotFound, TimedOut
from pageloom.worker.operator_thread import OperatorCall, OperatorThread
from pageloom.worker.responses import JsonResponse

METADATA = ("spec", "backend", "tier")
OPTIONS = {"paged_attention": "log_sum_exp", "onnx_attention": "outputs"}
"""What else the metadata of an operator may have, as JSON: a keyword of its call."""
RESERVED = (*METADATA, *OPTIONS.values(), "self")
"""Names that an operator's call has for other things than inputs."""
_DTYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}


def operator_routes(operators: OperatorThread, limits: Limits) -> list[Route]:
    """What there is, and a call of one."""

    async def describe(request: Request) -> Response:
        return JsonResponse({"operators": list(SPECS), "backends": await operators.describe()})

    async def run(request: Request) -> Response:
        operator = request.path_params["operator"]
        if operator not in SPECS:
            raise NotFound(f"there is no operator {operator!r}; there is {', '.join(SPECS)}")
        body = await read_body(request, limits.tensor_bytes, limits.body_seconds)
        call = await asyncio.to_thread(parse_call, operator, body, limits.tensors)
        try:
            async with asyncio.timeout(limits.request_seconds):
                result = await operators.run(call)
        except TimeoutError as error:
            raise TimedOut(f"{operator} took longer than a request may take; give it less") from error
        explained = json.dumps({"backend": call.backend, "tier": result.tier, "reasons": result.reasons})
        content = await asyncio.to_thread(write_safetensors, result.outputs, {"explain": explained})
        return Response(content, media_type="application/octet-stream")

    return [
        Route("/v1/ops", describe, methods=["GET"]),
        Route("/v1/ops/{operator}", run, methods=["POST"]),
    ]


def parse_call(operator: str, body: bytes, max_tensors: int) -> OperatorCall:
    """The call that a body describes. Raises `InvalidArgument`, and `CapacityExceeded` for too many tensors."""
    try:
        entries: list[tuple[str, dict[str, Any]]] = deserialize(body)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise InvalidArgument(f"the body is not in the safetensors format: {error}") from error
    if len(entries) > max_tensors:
        raise CapacityExceeded(f"{len(entries)} tensors in the body; at most {max_tensors} are taken")
    for name, _ in entries:
        if name in RESERVED:
            raise InvalidArgument(f"a tensor is called {name!r}, which is the name of no input", param=name)
    metadata = _metadata(body)
    known = (*METADATA, *([OPTIONS[operator]] if operator in OPTIONS else []))
    for name in metadata:
        if name not in known:
            raise InvalidArgument(f"unknown metadata {name!r}; there is {', '.join(known)}", param=name)
    options: dict[str, Any] = {"tier": metadata["tier"]} if "tier" in metadata else {}
    if (option := OPTIONS.get(operator, "")) in metadata:
        options[option] = _OPTION_CHECKS[option](metadata[option])
    if "spec" not in metadata:
        raise InvalidArgument("the metadata has no spec: the operator's attributes as a JSON object", param="spec")
    return OperatorCall(
        backend=metadata.get("backend", BACKENDS[0].name),
        operator=operator,
        spec=_spec(operator, metadata["spec"]),
        inputs={name: _tensor(name, entry) for name, entry in entries},
        options=options,
    )


def _metadata(body: bytes) -> dict[str, str]:
    """The text metadata of a file that is known to be well formed."""
    length = int.from_bytes(body[:8], "little")
    metadata: dict[str, str] = json.loads(body[8 : 8 + length]).get("__metadata__") or {}
    return metadata


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidArgument(f"log_sum_exp is {text!r:.60}; say true or false", param="log_sum_exp")
    return text == "true"


def _names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"outputs is {text!r:.60}; it has to be a JSON array of names", param="outputs")
    return names


_OPTION_CHECKS: Mapping[str, Callable[[str], object]] = {"log_sum_exp": _flag, "outputs": _names}


def _spec(operator: str, text: str) -> Any:
    attributes = parse_json_object(text)
    try:
        return SPECS[operator](**attributes)
    except TypeError as error:
        raise InvalidArgument(f"the spec does not fit {operator}: {error}", param="spec") from error


def _tensor(name: str, entry: Mapping[str, Any]) -> Tensor:
    """A tensor of its own memory, since an operator updates caches in place."""
    if entry["dtype"] not in _DTYPES:
        raise InvalidArgument(f"{name} has element type {entry['dtype']}; allowed are {', '.join(_DTYPES)}", param=name)
    info = TensorInfo(_DTYPES[entry["dtype"]], tuple(entry["shape"]))
    return Tensor(info, memoryview(bytearray(entry["data"])))
