"""Tensors without numpy: an element type, a shape and, where the numbers matter, little-endian bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "float8e4m3fn", "int64", "int32", "int8", "uint8", "bool"
]  # fmt: skip

ITEM_BYTES: dict[DType, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8e4m3fn": 1,
    "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Element type (ONNX's name for it) and shape of a dense, row-major tensor."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Product of the dimensions; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.num_elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense, row-major tensor in host memory; `data` is `info.num_bytes` little-endian bytes."""

    info: TensorInfo
    data: memoryview

    def row_bytes(self, row: int) -> memoryview:
        """The bytes of row `row` of the last axis, counted over all leading axes."""
        size = self.info.shape[-1] * ITEM_BYTES[self.info.dtype]
        return self.data[row * size : (row + 1) * size]

    def row(self, row: int) -> Sequence[float]:
        """The numbers of that row."""
        return decode(self.info.dtype, self.row_bytes(row))


def decode(dtype: DType, data: memoryview) -> Sequence[float]:
    """The exact numbers that little-endian `data` holds."""
    if dtype in _FORMATS:
        return struct.unpack(f"<{len(data) // ITEM_BYTES[dtype]}{_FORMATS[dtype]}", data)
    return _DECODERS[dtype](data)


def _bfloat16(data: memoryview) -> Sequence[float]:
    widened = bytearray(2 * len(data))
    widened[2::4], widened[3::4] = data[0::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", widened)


def _float8e4m3fn(code: int) -> float:
    """Four exponent bits with bias 7, three mantissa bits, no infinity; all ones is NaN (OCP 8-bit floating point)."""
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return math.nan
    return sign * (math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9))


FLOAT8E4M3FN = tuple(_float8e4m3fn(code) for code in range(256))
"""The number of each code."""

_FORMATS: dict[DType, str] = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int8": "b", "uint8": "B", "bool": "?",
}  # fmt: skip
_DECODERS: dict[DType, Callable[[memoryview], Sequence[float]]] = {
    "bfloat16": _bfloat16,
    "float8e4m3fn": lambda data: [FLOAT8E4M3FN[code] for code in data],
}
