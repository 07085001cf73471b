"""Tensors that operators take and give: host memory of any kind, or buffers of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pageloom.attention.tensors import ITEM_BYTES, DType, Tensor, TensorInfo
from pageloom.backends.webgpu.device import Buffer
from pageloom.errors import InvalidArgument

_ARRAY_DTYPES: dict[str, DType] = {"float8_e4m3fn": "float8e4m3fn", **{name: name for name in ITEM_BYTES}}
_FORMATS: dict[str, DType] = {"d": "float64", "f": "float32", "e": "float16", "b": "int8", "B": "uint8", "?": "bool"}
_INTEGERS: dict[int, DType] = {4: "int32", 8: "int64"}


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A dense, row-major tensor from the start of `buffer`, used where it lies."""

    buffer: Buffer
    dtype: DType
    shape: tuple[int, ...]

    @property
    def info(self) -> TensorInfo:
        """Element type and shape."""
        return TensorInfo(self.dtype, self.shape)


Operand = Tensor | DeviceTensor


def as_operand(name: str, value: Any) -> Operand:
    """`value` as a tensor: a `DeviceTensor` or `Tensor` as it is; an array with dtype and shape, as numpy's, or
    anything with the buffer protocol, as a copy, dense and row-major.

    Raises `InvalidArgument`, naming the input, for what is none of these, has an unknown element type (numbers of the
    other byte order have one), a shape that is none, or bytes that are not the tensor's.
    """
    if isinstance(value, DeviceTensor | Tensor):
        _check_shape(name, value.info)
        _check_bytes(name, value)
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "tobytes"):
        dtype = _known_dtype(name, _ARRAY_DTYPES.get(str(value.dtype)), value.dtype)
        return Tensor(TensorInfo(dtype, tuple(value.shape)), memoryview(value.tobytes()))
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidArgument(
            f"{name} is a {type(value).__name__} ({error}); an array, anything with the buffer protocol, or a "
            "DeviceTensor is allowed",
            param=name,
        ) from error
    code = view.format.lstrip("@=<")
    found = _FORMATS.get(code) or (_INTEGERS.get(view.itemsize) if code in tuple("ilq") else None)
    dtype = _known_dtype(name, found, view.format)
    return Tensor(TensorInfo(dtype, tuple(view.shape or ())), memoryview(view.tobytes()))


def _check_shape(name: str, info: TensorInfo) -> None:
    _known_dtype(name, info.dtype if isinstance(info.dtype, str) and info.dtype in ITEM_BYTES else None, info.dtype)
    shape: object = info.shape
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InvalidArgument(f"{name} has shape {shape!r}; a tuple of sizes of at least 0 is allowed", param=name)


def _check_bytes(name: str, tensor: Operand) -> None:
    """A buffer may be longer than its tensor; host memory may not."""
    wanted = tensor.info.num_bytes
    held = tensor.buffer.size if isinstance(tensor, DeviceTensor) else tensor.data.nbytes
    if held < wanted or (isinstance(tensor, Tensor) and held != wanted):
        where = "its buffer has" if isinstance(tensor, DeviceTensor) else "its data has"
        raise InvalidArgument(
            f"{name} is {tensor.info.dtype} {tensor.info.shape}, {wanted} bytes; {where} {held}", param=name
        )


def _known_dtype(name: str, dtype: DType | None, given: object) -> DType:
    if dtype is None:
        raise InvalidArgument(f"{name} has element type {given}; allowed are {', '.join(ITEM_BYTES)}", param=name)
    return dtype
