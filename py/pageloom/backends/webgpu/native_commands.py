"""What a recorded step holds on Dawn, and how it is encoded again each time it is submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BoundDispatch = tuple[Any, Any, tuple[int, int, int]]  # pipeline, bind group, grid
ResolvedCopy = tuple[Any, int, Any, int, int]  # source, its offset, target, its offset, bytes


@dataclass(frozen=True, slots=True)
class NativeBuffer:
    """A `device.Buffer` on Dawn."""

    handle: Any
    size: int
    label: str

    def destroy(self) -> None:
        self.handle.destroy()


@dataclass(frozen=True, slots=True)
class NativePipeline:
    """A `device.Pipeline` on Dawn, with the layout of its bind group 0."""

    handle: Any
    layout: Any


class ComputePass(list[BoundDispatch]):
    """Dispatches that share one compute pass; WebGPU makes each wait for the writes of those before it."""

    def encode(self, encoder: Any) -> None:
        compute = encoder.begin_compute_pass()
        current = None
        for pipeline, bind_group, grid in self:
            if pipeline is not current:
                compute.set_pipeline(pipeline)
                current = pipeline
            compute.set_bind_group(0, bind_group)
            compute.dispatch_workgroups(*grid)
        compute.end()


class Copies(list[ResolvedCopy]):
    """Copies, which WebGPU allows between passes only."""

    def encode(self, encoder: Any) -> None:
        for copy in self:
            encoder.copy_buffer_to_buffer(*copy)


@dataclass(frozen=True, slots=True)
class NativeRecording:
    """A `device.Recording` on Dawn."""

    runs: list[ComputePass | Copies]
    label: str
