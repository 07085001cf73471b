"""Cases as files: inputs, what must come out and how far off it may be, in the safetensors format.

Reading needs the standard library alone, so that a browser tab can run cases that were made where numpy is. The format:
eight bytes of header length (little endian), a JSON header of `{name: {dtype, shape, data_offsets}}` with text metadata
under `__metadata__`, then the tensors' bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pageloom.attention.cases.compare import Expected, Verdict, compare_outputs
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.scatter.spec import TensorScatterSpec
from pageloom.attention.tensors import DType, Tensor, TensorInfo
from pageloom.errors import InvalidArgument

SPECS: dict[str, type[Any]] = {
    "paged_attention": PagedAttentionSpec,
    "group_query_attention": GroupQueryAttentionSpec,
    "onnx_attention": OnnxAttentionSpec,
    "tensor_scatter": TensorScatterSpec,
}
SAFETENSORS_NAMES: dict[DType, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8e4m3fn": "F8_E4M3",
    "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in SAFETENSORS_NAMES.items()}
_INPUT, _WANT, _BUDGET = "in.", "want.", "budget."


@dataclass(frozen=True, slots=True)
class Vector:
    """One case in plain bytes; see `Case` for the fields."""

    name: str
    operator: str
    spec: Any
    needs: frozenset[str]
    guards: str
    inputs: dict[str, Tensor]
    expected: dict[str, Expected]

    def compare(self, outputs: Mapping[str, Tensor]) -> Verdict:
        """The verdict on `outputs`, by ONNX output name."""
        return compare_outputs(self.expected, outputs)


def write_vector(vector: Vector) -> bytes:
    """The file of `vector`."""
    tensors = {_INPUT + name: tensor for name, tensor in vector.inputs.items()}
    for name, expected in vector.expected.items():
        tensors |= {_WANT + name: expected.values, _BUDGET + name: expected.budget}
    case = {
        "name": vector.name,
        "operator": vector.operator,
        "spec": {field.name: getattr(vector.spec, field.name) for field in fields(vector.spec)},
        "needs": sorted(vector.needs),
        "guards": vector.guards,
        "optional": [name for name, expected in vector.expected.items() if expected.optional],
    }
    return write_safetensors(tensors, {"case": json.dumps(case)})


def read_vector(data: bytes) -> Vector:
    """The vector of a file; raises `InvalidArgument` for bytes that are none."""
    tensors, metadata = read_safetensors(data)
    if "case" not in metadata:
        raise InvalidArgument("the file holds tensors but no conformance case", param="case")
    case = json.loads(metadata["case"])
    wanted = [name.removeprefix(_WANT) for name in tensors if name.startswith(_WANT)]
    return Vector(
        name=case["name"],
        operator=case["operator"],
        spec=SPECS[case["operator"]](**case["spec"]),
        needs=frozenset(case["needs"]),
        guards=case["guards"],
        inputs={name.removeprefix(_INPUT): tensor for name, tensor in tensors.items() if name.startswith(_INPUT)},
        expected={
            name: Expected(tensors[_WANT + name], tensors[_BUDGET + name], name in case["optional"]) for name in wanted
        },
    )


def write_safetensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """One file of `tensors`, in their order, with text `metadata`."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.info.num_bytes
        dtype = SAFETENSORS_NAMES[tensor.info.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.info.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(tensor.data for tensor in tensors.values())])


def read_safetensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors by name, metadata) of a file; the tensors are views of `data`.

    Raises `InvalidArgument` for a header that is cut short or is no JSON object, an unknown element type, or bytes that
    do not match a tensor's shape.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise InvalidArgument(f"a header of {length} bytes is promised in a file of {len(data)}", param="header")
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        entries = [(name, e["dtype"], tuple(e["shape"]), *e["data_offsets"]) for name, e in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgument(f"the header is no safetensors header: {error}", param="header") from error
    body = memoryview(data)[8 + length :]
    tensors = {}
    for name, dtype, shape, start, end in entries:
        if dtype not in _DTYPES:
            raise InvalidArgument(f"{name} has element type {dtype}; allowed are {', '.join(_DTYPES)}", param=name)
        info = TensorInfo(_DTYPES[dtype], shape)
        if not 0 <= start <= end <= len(body) or end - start != info.num_bytes:
            raise InvalidArgument(
                f"{name} of shape {shape} takes {info.num_bytes} bytes; offsets {start} to {end} of {len(body)} do not",
                param=name,
            )
        tensors[name] = Tensor(info, body[start:end])
    return tensors, metadata
