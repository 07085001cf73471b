"""What a recorded step holds on Dawn, and how it is encoded again each time it is submitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BoundDispatch = tuple[Any, Any, tuple[int, int, int], Any]  # pipeline, bind group, grid, buffer of the grid or None
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

    def encode(self, encoder: Any, timestamp_writes: Any = None) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=timestamp_writes)
        current = None
        for pipeline, bind_group, grid, indirect in self:
            if pipeline is not current:
                compute.set_pipeline(pipeline)
                current = pipeline
            compute.set_bind_group(0, bind_group)
            if indirect is None:
                compute.dispatch_workgroups(*grid)
            else:
                compute.dispatch_workgroups_indirect(indirect, 0)
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

    def encode(self, encoder: Any, query_set: Any = None) -> bool:
        """Encode all runs; into a `query_set` of two go the times at which the first dispatch begins and the last ends.

        Returns whether there is a dispatch.
        """
        passes = [run for run in self.runs if isinstance(run, ComputePass)]
        for run in self.runs:
            if query_set is None or not isinstance(run, ComputePass):
                run.encode(encoder)
                continue
            writes = {"query_set": query_set}
            if run is passes[0]:
                writes["beginning_of_pass_write_index"] = 0
            if run is passes[-1]:
                writes["end_of_pass_write_index"] = 1
            run.encode(encoder, writes if len(writes) > 1 else None)
        return bool(passes)
