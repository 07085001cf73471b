"""Readback on Dawn: staging buffers that are kept and used again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SMALLEST = 256
KEPT_PER_SIZE = 4


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy on its way: `promise` resolves when `handle` is mapped."""

    handle: Any
    size_class: int
    promise: Any


class StagingPool:
    """Mappable buffers by size class (powers of two), at most `KEPT_PER_SIZE` idle ones of each."""

    def __init__(self, wgpu: Any, device: Any) -> None:
        self._device = device
        self._usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
        self._free: dict[int, list[Any]] = {}

    def copy(self, source: Any, offset: int, size: int) -> Staged:
        """Queue the copy of a range (offset a multiple of 4) and ask for its mapping."""
        copied = max(4, (size + 3) & ~3)
        size_class = max(SMALLEST, 1 << (copied - 1).bit_length())
        free = self._free.get(size_class)
        handle = free.pop() if free else self._device.create_buffer(size=size_class, usage=self._usage)
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, offset, handle, 0, copied)
        self._device.queue.submit([encoder.finish()])
        return Staged(handle, size_class, handle.map_async("READ", 0, copied))

    def take(self, staged: Staged, size: int) -> bytes:
        """The first `size` bytes of a mapped copy, whose buffer goes back to the pool."""
        data = bytes(staged.handle.read_mapped(copy=False)[:size])
        staged.handle.unmap()
        free = self._free.setdefault(staged.size_class, [])
        if len(free) < KEPT_PER_SIZE:
            free.append(staged.handle)
        else:
            staged.handle.destroy()
        return data
