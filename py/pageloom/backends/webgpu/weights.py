"""Weights on the device: uploaded as they are in the file, repacked there; their bytes never enter the Python heap."""

from __future__ import annotations

import array
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pageloom.backends.webgpu.device import Buffer, Device, Dispatch
from pageloom.backends.webgpu.program import Programs
from pageloom.backends.webgpu.programs.repack import Placement, repack_key
from pageloom.backends.webgpu.weight_layout import WeightLayout, binding_limit, describe_weight
from pageloom.errors import BadModelFile, InvalidArgument, NotSupported
from pageloom.model.gguf import TensorInfo, read_tensor
from pageloom.model.source import RangedSource

STAGING_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class WeightShard:
    """The rows `rows` of a weight. `scales` is None where the codes are the values."""

    rows: range
    codes: Buffer
    scales: Buffer | None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return (self.codes,) if self.scales is None else (self.codes, self.scales)


@dataclass(frozen=True, slots=True)
class DeviceWeight:
    """A matrix `[out_features, in_features]` on the device, split by rows where it is larger than one binding.

    `interleaved` says that its rows come from its tensors in turn (gate 0, up 0, gate 1, ...), not one after the other.
    """

    label: str
    layout: WeightLayout
    shards: tuple[WeightShard, ...]
    interleaved: bool = False

    @property
    def out_features(self) -> int:
        return self.layout.rows

    @property
    def in_features(self) -> int:
        return self.layout.columns

    def destroy(self) -> None:
        for shard in self.shards:
            for buffer in shard.buffers:
                buffer.destroy()


async def load_weight(
    device: Device,
    programs: Programs,
    source: RangedSource,
    tensors: Sequence[TensorInfo],
    label: str,
    *,
    interleaved: bool = False,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> DeviceWeight:
    """One weight of the rows of `tensors`, each `[rows, columns]`, in order or (`interleaved`) in turn.

    Reads `source` in pieces of whole rows, about `STAGING_BYTES` at a time, and calls `on_bytes` with the size of each
    piece that has arrived. Raises `NotSupported` for shapes or sizes that the device cannot hold, `BadModelFile` for
    numbers that are not finite, `OutOfMemory`, and what the source raises; nothing is left on the device then.
    """
    layout = describe_weight(tensors, device.info.adapter_class)
    if interleaved and len({tensor.shape for tensor in tensors}) != 1:
        raise InvalidArgument(f"{label}: interleaved tensors must have one shape", param=label)
    weight = DeviceWeight(label, layout, _allocate(device, layout, label), interleaved)
    staging_limit = min(STAGING_BYTES, binding_limit(device.info))
    largest_row = max(tensor.size // tensor.shape[0] for tensor in tensors)
    staging = device.buffer(max(largest_row, min(staging_limit, max(tensor.size for tensor in tensors))), "raw weights")
    placement, faults = device.buffer(20, "placement"), device.buffer(4, "faults")
    try:
        if largest_row > binding_limit(device.info):
            raise NotSupported(f"{label}: a row of {largest_row} bytes is more than the device binds", param=label)
        await device.settle()
        first = 0
        for index, tensor in enumerate(tensors):
            rows = range(index, layout.rows, len(tensors)) if interleaved else range(first, first + tensor.shape[0])
            first += tensor.shape[0]
            await _load_tensor(device, programs, source, tensor, rows, weight, (staging, placement, faults), on_bytes)
        if any(await device.read(faults, 0, 4)):
            raise _not_finite(label)
    except BaseException:
        weight.destroy()
        raise
    finally:
        for buffer in (staging, placement, faults):
            buffer.destroy()
    return weight


async def load_vector(device: Device, source: RangedSource, parts: Sequence[TensorInfo | int], label: str) -> Buffer:
    """A buffer of f32: the small tensors among `parts`, one after the other, and that many zeros for a number.

    Raises `BadModelFile` for numbers that are not finite.
    """
    values = [None if isinstance(part, int) else await _read_finite(source, part) for part in parts]
    lengths = [part if isinstance(part, int) else part.shape[-1] for part in parts]
    buffer = device.buffer(4 * sum(lengths), label)
    for numbers, start in zip(values, itertools.accumulate(lengths, initial=0), strict=False):
        if numbers is not None:
            device.write(buffer, 4 * start, numbers)
    return buffer


async def _read_finite(source: RangedSource, tensor: TensorInfo) -> array.array[float]:
    values = await read_tensor(source, tensor)
    if not all(map(math.isfinite, values)):
        raise _not_finite(tensor.name)
    return values


def _not_finite(name: str) -> BadModelFile:
    return BadModelFile(
        f"{name} holds an infinite number, or what is no number; the file is damaged or was converted from too large "
        "numbers: fetch it again, or convert it to another format",
        param=name,
    )


def _allocate(device: Device, layout: WeightLayout, label: str) -> tuple[WeightShard, ...]:
    shards = layout.shards(device.info)
    return tuple(
        WeightShard(
            rows,
            device.buffer(len(rows) * layout.row_code_bytes, f"{label} codes {rows.start}"),
            device.buffer(len(rows) * layout.row_scale_bytes, f"{label} scales {rows.start}")
            if layout.row_scale_bytes
            else None,
        )
        for rows in shards
    )


async def _load_tensor(
    device: Device,
    programs: Programs,
    source: RangedSource,
    tensor: TensorInfo,
    rows: range,
    weight: DeviceWeight,
    scratch: tuple[Buffer, Buffer, Buffer],
    on_bytes: Callable[[int], None],
) -> None:
    """Row i of `tensor` becomes row `rows[i]` of `weight`. `scratch`: raw bytes, placement, faults."""
    staging, placement, faults = scratch
    pipeline = await programs.pipeline(repack_key(tensor.format.name, weight.layout.encoding))
    row_bytes = tensor.size // tensor.shape[0]
    for shard in weight.shards:
        inside = _indices_within(rows, shard.rows)
        dispatch_buffers = (staging, placement, faults, *shard.buffers)
        for start in range(inside.start, inside.stop, staging.size // row_bytes):
            count = min(staging.size // row_bytes, inside.stop - start)
            size = count * row_bytes
            place = Placement(count, row_bytes, weight.layout.chunks, rows[start] - shard.rows.start, rows.step)
            await device.upload(staging, 0, source, tensor.offset + start * row_bytes, size)
            device.write(placement, 0, place.words())
            dispatch = Dispatch(pipeline, dispatch_buffers, place.grid(), f"repack {tensor.name}")
            device.submit(device.record([dispatch], dispatch.label))
            on_bytes(size)


def _indices_within(rows: range, shard: range) -> range:
    """The indices i whose `rows[i]` lies in `shard`; `rows` ascends."""
    start = max(0, -(-(shard.start - rows.start) // rows.step))
    stop = min(len(rows), -(-(shard.stop - rows.start) // rows.step))
    return range(start, max(start, stop))
