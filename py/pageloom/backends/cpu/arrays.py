"""Arrays that operators take: used where they lie, or refused in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, as_array
from pageloom.attention.tensors import Tensor
from pageloom.attention.validation import require
from pageloom.errors import InvalidArgument

_KNOWN = set(NUMPY_DTYPES.values())


def view(name: str, value: Any) -> Array:
    """`value` as an array over the same memory: numpy's, a `Tensor`, or anything with the buffer or array protocol.

    Raises `InvalidArgument`, naming the input, for what is none of these or has an unknown element type, such as one of
    the other byte order.
    """
    if isinstance(value, np.ndarray):
        array: Array = value
    elif isinstance(value, Tensor):
        array = as_array(value)
    else:
        try:
            array = np.asarray(memoryview(value))
        except (TypeError, ValueError) as error:
            if not hasattr(value, "__array__"):
                raise InvalidArgument(
                    f"{name} is a {type(value).__name__}; an array, or anything with the buffer protocol, is allowed",
                    param=name,
                ) from error
            array = np.asarray(value)
    if array.dtype not in _KNOWN:
        named = array.dtype if array.dtype.isnative else f"{array.dtype} of the other byte order"
        raise InvalidArgument(f"{name} has element type {named}; allowed are {', '.join(NUMPY_DTYPES)}", param=name)
    return array


def views(given: Mapping[str, Any]) -> dict[str, Array]:
    """`view` of all inputs that are there: None stands for an input left out."""
    return {name: view(name, value) for name, value in given.items() if value is not None}


def dense(name: str, array: Array, *, may_copy: bool) -> Array:
    """`array` in row-major order without gaps; a copy where it is not so and `may_copy`, else `InvalidArgument`."""
    require(
        may_copy or array.flags.c_contiguous,
        f"{name} is not contiguous, and a recorded call reads it where it lies; give np.ascontiguousarray({name})",
        name,
    )
    return array if array.flags.carray else np.require(array, requirements=["C", "ALIGNED"])


LINE_BYTES = 64


def zeros_on_lines(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that begin on a cache line, so that a vector of a row is read from one; numpy's may begin 16 later."""
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(num_bytes + LINE_BYTES, np.uint8)
    first = -memory.ctypes.data % LINE_BYTES
    zeros: Array = memory[first : first + num_bytes].view(dtype).reshape(shape)
    return zeros


def require_writable(name: str, array: Array) -> None:
    """Raise `InvalidArgument` unless a call may write `array` in place."""
    require(array.flags.writeable, f"{name} is read-only; it is written in place, so give an array of your own", name)
    require(
        array.flags.c_contiguous and array.flags.aligned,
        f"{name} is not contiguous; it is written in place, so give an array in row-major order without gaps",
        name,
    )


def same_memory(first: Array, second: Array) -> bool:
    """Whether both are the same elements of the same memory."""
    return (
        first.shape == second.shape
        and first.dtype == second.dtype
        and first.strides == second.strides
        and first.ctypes.data == second.ctypes.data
    )


def require_apart(name: str, written: Array, others: Mapping[str, Array]) -> None:
    """Raise `InvalidArgument` where `written` overlaps one of `others`."""
    for other, array in others.items():
        if np.may_share_memory(written, array):
            raise InvalidArgument(
                f"{other} and {name} share memory, and {name} is written; give arrays apart", param=other
            )
