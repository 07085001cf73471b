"""What every kernel relies on from the native device."""

from __future__ import annotations

import array
import struct

import pytest

from pageloom.backends.webgpu.device import Copy, Dispatch
from pageloom.backends.webgpu.native import NativeDevice

DOUBLE = """
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&data)) { data[id.x] = 2u * data[id.x]; }
}
"""


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 63, 64, 65, 4095, 65537])
async def test_bytes_of_any_length_come_back_as_they_were_written(device: NativeDevice, length: int) -> None:
    data = bytes((7 * i + 1) % 256 for i in range(length))
    buffer = device.buffer(length + 12)
    device.write(buffer, 4, data)
    assert await device.read(buffer, 4, length) == data
    assert await device.read(buffer, 0, buffer.size) == (bytes(4) + data).ljust(buffer.size, b"\0")
    buffer.destroy()


async def test_reads_and_submits_keep_their_order(device: NativeDevice) -> None:
    pipeline = await device.pipeline(DOUBLE)
    buffer, kept = device.buffer(400), device.buffer(400)
    device.write(buffer, 0, array.array("I", range(100)))
    recording = device.record(
        [
            Dispatch(pipeline, (buffer,), (2, 1, 1)),
            Copy(buffer, 0, kept, 0, 400),
            Dispatch(pipeline, (buffer,), (2, 1, 1)),
        ]
    )
    before = device.read(buffer, 0, 400)
    device.submit(recording)
    once = device.read(kept, 0, 400)
    twice = device.read(buffer, 0, 400)
    device.submit(recording)
    for factor, pending in ((4, twice), (1, before), (2, once)):
        assert struct.unpack("<100I", await pending) == tuple(factor * i for i in range(100))
    buffer.destroy()
    kept.destroy()
