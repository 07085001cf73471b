"""Writes small GGUF files for tests, right ones and wrong ones, from the format's description."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LAYOUTS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}
_LAYOUTS |= {U64: "<Q", I64: "<q", F64: "<d"}


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind: int, content: Any) -> bytes:
    """A value; that of an array is (element kind, elements)."""
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        element, items = content
        return struct.pack("<IQ", element, len(items)) + b"".join(value(element, item) for item in items)
    return struct.pack(_LAYOUTS[kind], content)


def key_value(key: str | bytes, kind: int, content: Any) -> bytes:
    return string(key) + struct.pack("<I", kind) + value(kind, content)


def tensor_info(name: str, dims: Sequence[int], type_id: int = 0, offset: int = 0) -> bytes:
    """`dims` in the file's order, the fastest first."""
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, type_id, offset)


def header(
    pairs: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    *,
    version: int = 3,
    pair_count: int | None = None,
    info_count: int | None = None,
) -> bytes:
    counts = (len(infos) if info_count is None else info_count, len(pairs) if pair_count is None else pair_count)
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(infos)


def pad(data: bytes, alignment: int = 32) -> bytes:
    return data + bytes(-len(data) % alignment)


def model(pairs: Sequence[bytes], tensors: dict[str, tuple[Sequence[int], int, bytes]], alignment: int = 32) -> bytes:
    """A whole file. `tensors` maps a name to its row-major shape, ggml type and data."""
    infos, data = [], b""
    for name, (shape, type_id, content) in tensors.items():
        infos.append(tensor_info(name, list(shape)[::-1], type_id, len(data)))
        data += pad(content, alignment)
    return pad(header(pairs, infos), alignment) + data
