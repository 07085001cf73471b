"""How tensors of each element type lie in storage buffers; `wgsl/lib/elements.wgsl.j2` reads and writes them."""

from __future__ import annotations

from typing import Literal

from pageloom.attention.cache_storage import Element
from pageloom.attention.tensors import DType
from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.templates import half_storage

ElementKind = Literal["f32", "f16", "packed_f16", "bf16", "int8", "int4", "f8"]
"""The parameter of templates that say how a tensor's elements are stored."""

_KINDS: dict[Element | DType, ElementKind] = {
    "float32": "f32",
    "bfloat16": "bf16",
    "int8": "int8",
    "int4": "int4",
    "float8e4m3fn": "f8",
}


def element_kind(info: DeviceInfo, element: Element | DType) -> ElementKind:
    """The kind of a tensor of `element`; half precision is packed in words where the device lacks the type."""
    return half_storage(info) if element == "float16" else _KINDS[element]
