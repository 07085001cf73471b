"""The project's element types in numpy: bfloat16 and float8e4m3fn come from `ml_dtypes`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pageloom.attention.tensors import DType, Tensor, TensorInfo

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

NUMPY_DTYPES: dict[DType, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}

UNIT_ROUNDOFF: dict[DType, float] = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to nearest."""

SMALLEST_NORMAL: dict[DType, float] = {
    "float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126
}  # fmt: skip
"""What a device that flushes subnormals may lose, whatever the precision."""


def dtype_name(array: Array) -> DType:
    """ONNX's name for the element type of `array`; raises KeyError for one that no operator takes."""
    return _NAMES[array.dtype]


def describe(array: Array) -> TensorInfo:
    """Element type and shape of `array`."""
    return TensorInfo(dtype_name(array), array.shape)


def describe_all(arrays: dict[str, Array]) -> dict[str, TensorInfo]:
    """Element types and shapes by name."""
    return {name: describe(array) for name, array in arrays.items()}


def to_float64(array: Array) -> Float64:
    """The exact values of a float array."""
    return array.astype(np.float64)


def as_tensor(array: Array) -> Tensor:
    """A copy of `array` as plain bytes."""
    return Tensor(describe(array), memoryview(np.ascontiguousarray(array).tobytes()))


def as_tensors(arrays: dict[str, Array]) -> dict[str, Tensor]:
    """Copies of named arrays as plain bytes."""
    return {name: as_tensor(array) for name, array in arrays.items()}


def as_array(tensor: Tensor) -> Array:
    """The numpy view of `tensor`."""
    return np.frombuffer(tensor.data, NUMPY_DTYPES[tensor.info.dtype]).reshape(tensor.info.shape)
