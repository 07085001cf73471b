"""The rules that every operator's checks are written in: each raises `InvalidArgument` naming the argument."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pageloom.attention.tensors import DType, TensorInfo
from pageloom.errors import InvalidArgument, shown

FLOAT32_RANGE = (2.0**-126, (2 - 2.0**-23) * 2.0**127)
"""The smallest normal and the largest magnitude."""


def require(condition: bool, message: str, param: str) -> None:
    """Raise `InvalidArgument(message, param=param)` unless `condition` holds."""
    if not condition:
        raise InvalidArgument(message, param=param)


def require_int(param: str, value: object, minimum: int) -> None:
    """An attribute that is an integer of at least `minimum`."""
    require(
        isinstance(value, int) and not isinstance(value, bool) and value >= minimum,
        f"{param} is {shown(value)}; an integer of at least {minimum} is allowed",
        param,
    )


def require_flag(param: str, value: object) -> None:
    """An attribute that is a bool, or ONNX's 0 or 1 for one."""
    require(value in (0, 1) and isinstance(value, int), f"{param} is {shown(value)}; 0 or 1 is allowed", param)


def require_one_of(param: str, value: object, allowed: Sequence[object]) -> None:
    """An attribute out of a closed list."""
    require(value in allowed, f"{param} is {shown(value)}; allowed are {', '.join(map(repr, allowed))}", param)


def require_real(param: str, value: object, *, minimum: float = -math.inf, exclusive: bool = False) -> None:
    """An attribute, which ONNX stores in float32: a finite number of at least `minimum`, or above it where
    `exclusive`."""
    bound = f" {'above' if exclusive else 'of at least'} {minimum:g}" if minimum > -math.inf else ""
    require(
        isinstance(value, int | float)
        and (value == 0 or FLOAT32_RANGE[0] <= abs(value) <= FLOAT32_RANGE[1])
        and (value > minimum if exclusive else value >= minimum),
        f"{param} is {shown(value)}; a finite number{bound}, of float32's normal range, is allowed",
        param,
    )


def require_heads(num_heads: int, kv_num_heads: int) -> None:
    """Head counts of grouped-query attention: both positive, the second a divisor of the first."""
    require_int("num_heads", num_heads, 1)
    require_int("kv_num_heads", kv_num_heads, 1)
    require(
        num_heads % kv_num_heads == 0,
        f"num_heads {num_heads} is no multiple of kv_num_heads {kv_num_heads}; every K/V head serves a whole group",
        "kv_num_heads",
    )


def require_window(local_window_size: int) -> None:
    """-1 (off), or the number of keys that a query sees, its own included."""
    require_int("local_window_size", local_window_size, -1)
    require(
        local_window_size != 0,
        "local_window_size is 0, which would hide every key; -1 turns the window off, W >= 1 shows W keys",
        "local_window_size",
    )


class Inputs:
    """The tensors given to an operator, by ONNX input name; what is None or missing is absent."""

    def __init__(self, given: Mapping[str, TensorInfo | None], known: Sequence[str]) -> None:
        for name in given:
            require(name in known, f"there is no input {name!r}; the inputs are {', '.join(known)}", name)
        self._given = {name: info for name, info in given.items() if info is not None}

    def get(self, param: str) -> TensorInfo | None:
        """The description of an optional input, or None."""
        return self._given.get(param)

    def has(self, param: str) -> bool:
        """Whether an input was given."""
        return param in self._given

    def need(self, param: str, reason: str = "it is always required") -> TensorInfo:
        """The description of an input that must be there."""
        require(param in self._given, f"{param} is missing; {reason}", param)
        return self._given[param]

    def forbid(self, param: str, reason: str) -> None:
        """An input that must not be there."""
        require(param not in self._given, f"{param} was given; it must be absent: {reason}", param)

    def need_both(self, first: str, second: str) -> bool:
        """Whether both of a pair were given; one alone is an error."""
        for present, absent in ((first, second), (second, first)):
            require(
                self.has(absent) or not self.has(present),
                f"{present} was given without {absent}; give both or neither",
                absent,
            )
        return self.has(first)


def require_rank(param: str, info: TensorInfo, *ranks: int) -> None:
    """A tensor of one of `ranks` dimensions, none of them negative."""
    require(
        len(info.shape) in ranks and min(info.shape, default=0) >= 0,
        f"{param} has shape {info.shape}; {' or '.join(map(str, ranks))} dimensions are allowed",
        param,
    )


def require_dtype(param: str, info: TensorInfo, *allowed: DType) -> None:
    """A tensor of one of the element types `allowed`."""
    require(info.dtype in allowed, f"{param} has element type {info.dtype}; allowed are {', '.join(allowed)}", param)


def require_tensor(param: str, info: TensorInfo, dtype: DType, shape: tuple[int, ...]) -> None:
    """A tensor of exactly this element type and shape."""
    require_dtype(param, info, dtype)
    require(info.shape == shape, f"{param} has shape {info.shape}; {shape} is expected", param)
