"""What a check needs to know of a tensor: its element type and its shape. Standard library only."""

from __future__ import annotations

import math
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
