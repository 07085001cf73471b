"""Tensors that the operators take and give: PyTorch's on the device where they lie, host memory of any kind as a
copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, as_array
from pageloom.attention.tensors import DType, Tensor, TensorInfo
from pageloom.errors import InvalidArgument

TORCH_DTYPES: dict[DType, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8e4m3fn": torch.float8_e4m3fn,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_NUMPY_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
ON_HOST = ("attention_metadata", "total_sequence_length")
"""Inputs that the operators' contracts keep in host memory: they size grids."""
_BITS: dict[DType, torch.dtype] = {"bfloat16": torch.int16, "float8e4m3fn": torch.uint8}
"""Types that numpy has from elsewhere, and those that carry their bits between the two libraries."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One input: its tensor on the device, and whether it was in host memory."""

    tensor: torch.Tensor
    host: Array | None

    @property
    def info(self) -> TensorInfo:
        return TensorInfo(_NAMES[self.tensor.dtype], tuple(self.tensor.shape))


def as_operand(name: str, value: Any, device: torch.device) -> Operand:
    """`value` on `device`: a tensor there as it is, anything in host memory copied, but for what stays there.

    Host memory is a PyTorch tensor on another device, numpy's arrays, `Tensor`, or anything with the buffer protocol.
    Raises `InvalidArgument`, naming the input, for what is none of these, an unknown element type or, on the device,
    gaps between elements.
    """
    if isinstance(value, torch.Tensor):
        if value.dtype not in _NAMES:
            raise InvalidArgument(
                f"{name} has element type {value.dtype}; allowed are {', '.join(TORCH_DTYPES)}", param=name
            )
        if value.device.type == device.type and device.index in (None, value.device.index):
            if not value.is_contiguous():
                raise InvalidArgument(
                    f"{name} is not contiguous, and is read where it lies; give {name}.contiguous()", param=name
                )
            return Operand(value.detach(), None)
        value = to_numpy(value)
    array = _host_array(name, value)
    if name in ON_HOST:
        return Operand(from_numpy(array, torch.device("cpu")), array)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise InvalidArgument(
            f"{name} is in host memory, which a CUDA graph cannot read later; give a tensor on {device}", param=name
        )
    return Operand(from_numpy(array, device), array)


def _host_array(name: str, value: Any) -> Array:
    if isinstance(value, Tensor):
        return as_array(value)
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(memoryview(value))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{name} is a {type(value).__name__}; a PyTorch tensor, an array, or anything with the buffer protocol is "
            "allowed",
            param=name,
        ) from error
    if array.dtype not in _NUMPY_NAMES:
        raise InvalidArgument(
            f"{name} has element type {array.dtype}; allowed are {', '.join(NUMPY_DTYPES)}", param=name
        )
    return array


def from_numpy(array: Array, device: torch.device) -> torch.Tensor:
    """A copy of `array` on `device`."""
    name = _NUMPY_NAMES[array.dtype]
    copied = np.array(array, order="C")
    if name in _BITS:
        bits = np.int16 if name == "bfloat16" else np.uint8
        return torch.from_numpy(copied.view(bits)).view(TORCH_DTYPES[name]).to(device)
    return torch.from_numpy(copied).to(device)


def to_numpy(tensor: torch.Tensor) -> Array:
    """A copy of `tensor` in host memory, which waits for the device."""
    name = _NAMES[tensor.dtype]
    host = tensor.detach().cpu().contiguous()
    if name in _BITS:
        result: Array = host.view(_BITS[name]).numpy().view(NUMPY_DTYPES[name])
        return result
    return np.asarray(host.numpy())


def same_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether both are the same elements of the same memory."""
    return bool(first.data_ptr() == second.data_ptr() and first.shape == second.shape and first.dtype == second.dtype)


def require_apart(written: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> None:
    """Raise `InvalidArgument` where a tensor that is written overlaps another input."""
    for name, target in written.items():
        low, high = target.data_ptr(), target.data_ptr() + target.nbytes
        for other, tensor in others.items():
            if other != name and tensor.nbytes and low < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < high:
                raise InvalidArgument(
                    f"{other} and {name} share memory, and {name} is written; give tensors apart", param=other
                )
