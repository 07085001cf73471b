"""The little of WebGPU that the backend needs, as a protocol with two homes: `native.py` (Dawn) and `browser.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pageloom.errors import InvalidArgument
from pageloom.model.source import RangedSource

AdapterClass = Literal["software", "gpu"]
INTEGER_DOTS = "packed_4x8_integer_dot_product"
SUBGROUP_MATRICES = "chromium-experimental-subgroup-matrix"

MatrixShape = tuple[str, str, int, int, int]
"""Of a product of matrices within a subgroup: the types of its factors and of its result, and M, N and K."""
BYTE_MATRICES: MatrixShape = ("i8", "i32", 16, 8, 32)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What an adapter is and can do. `limits` and `features` are the *device's*, by their WebGPU names."""

    vendor: str
    architecture: str
    description: str
    home: Literal["native", "browser"]
    adapter_class: AdapterClass
    features: frozenset[str]
    limits: Mapping[str, int]
    subgroup_min_size: int = 0
    """Threads of the smallest subgroup that a shader may run in; 0 without the feature."""
    subgroup_max_size: int = 0
    """Threads of the largest; 0 without the feature."""
    matrix_shapes: frozenset[MatrixShape] = frozenset()
    """The products of matrices within subgroups; none without the feature."""
    language_features: frozenset[str] = frozenset()
    """The extensions of WGSL that shaders may require, by their names there."""
    subgroups_refused: str = ""
    """Why the device does without subgroups that its adapter has; "" where it uses them, or has none."""

    @property
    def has_f16(self) -> bool:
        """Whether shaders may use the `f16` type; without it, f16 is stored packed in `u32` words."""
        return "shader-f16" in self.features

    @property
    def has_subgroups(self) -> bool:
        return "subgroups" in self.features

    @property
    def has_integer_dots(self) -> bool:
        """Whether shaders may multiply and add four bytes at once."""
        return INTEGER_DOTS in self.language_features

    @property
    def name(self) -> str:
        """The adapter in words."""
        return f"{self.description} ({self.adapter_class}, {'native' if self.has_f16 else 'packed'} f16), {self.home}"


class Buffer(Protocol):
    """A storage buffer on the device. `size` is in bytes and a multiple of 4."""

    @property
    def size(self) -> int: ...

    @property
    def label(self) -> str: ...

    def destroy(self) -> None: ...


def check_range(buffer: Buffer, offset: int, length: int) -> None:
    """Raise `InvalidArgument` unless bytes [offset, offset + length) are in `buffer` and aligned to 4."""
    if offset % 4 or offset < 0 or length < 0 or offset + length > buffer.size:
        raise InvalidArgument(
            f"bytes {offset} to {offset + length} (exclusive) of buffer {buffer.label!r}: "
            f"the offset must be a multiple of 4 and the range lie within its {buffer.size} bytes"
        )


def in_background(arrival: Coroutine[Any, Any, bytes]) -> Awaitable[bytes]:
    """Run a readback whether it is awaited or not; where it is given up, its error is nobody's."""
    task = asyncio.ensure_future(arrival)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class Pipeline(Protocol):
    """A compiled compute pipeline whose bind group 0 has binding i for the i-th buffer of a dispatch."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One dispatch: `buffers[i]` is binding i of group 0 (the whole buffer); `grid` counts workgroups a dimension.

    With `indirect`, the grid is what the first three words of that buffer hold when the dispatch runs, and `grid` only
    bounds it. A grid with a 0, or with more than the device's most workgroups a dimension, runs nothing.
    """

    pipeline: Pipeline
    buffers: tuple[Buffer, ...]
    grid: tuple[int, int, int]
    label: str = ""
    indirect: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between two buffers; offsets and size in bytes, multiples of 4."""

    source: Buffer
    source_offset: int
    target: Buffer
    target_offset: int
    size: int


class Recording(Protocol):
    """Commands recorded once (bind groups made) and replayed by `Device.submit` with one call."""


class Device(Protocol):
    """One WebGPU device.

    Creation errors are collected: `buffer` returns at once, and the next `await settle()` raises what went wrong
    (`OutOfMemory`, `DeviceError`). After the device is lost every call raises `DeviceLost`.
    """

    @property
    def info(self) -> DeviceInfo: ...

    def buffer(self, size: int, label: str = "") -> Buffer:
        """A zero-filled buffer of at least `size` bytes, usable as storage, copy source and target, and indirect."""
        ...

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Queue a write of anything with the buffer protocol; `offset` is a multiple of 4, any byte length is allowed
        (the bytes up to the next multiple of 4 are then written as zeros)."""
        ...

    async def upload(self, buffer: Buffer, offset: int, source: RangedSource, source_offset: int, length: int) -> None:
        """Copy a range of `source` into `buffer` in chunks; in the browser the bytes never enter the Python heap."""
        ...

    async def pipeline(self, code: str, label: str = "") -> Pipeline:
        """Compile WGSL with the entry point `main`. Raises `DeviceError` with the compiler's text."""
        ...

    def record(self, commands: Sequence[Dispatch | Copy], label: str = "") -> Recording: ...

    def submit(self, recording: Recording) -> None: ...

    async def time(self, recording: Recording) -> float | None:
        """Submit a recording and return its seconds by the device's own clock, from the beginning of its first dispatch
        to the end of its last; None without "timestamp-query", and where it has no dispatch.

        Browsers round the clock to 0.1 ms.
        """
        ...

    def read(self, buffer: Buffer, offset: int, size: int) -> Awaitable[bytes]:
        """The bytes of a range, after everything submitted so far and before anything submitted later.

        A plain function, not a coroutine: the copy is queued by the call itself, and only its arrival is awaited.
        """
        ...

    async def settle(self) -> None:
        """Wait for the creation errors collected so far and raise the first."""
        ...

    async def idle(self) -> None:
        """Wait until everything submitted so far has run."""
        ...

    def close(self) -> None:
        """Destroy the device and everything on it. Safe to call twice."""
        ...
