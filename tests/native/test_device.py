"""What every kernel relies on from the native device."""

from __future__ import annotations

import array
import asyncio
import gc
import struct
from collections import Counter
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from pageloom.backends.webgpu.device import Copy, Dispatch
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.errors import BadModelFile, DeviceError, DeviceLost, InvalidArgument, OutOfMemory
from pageloom.model.source import BytesSource

COUNT_GROUPS = """
@group(0) @binding(0) var<storage, read_write> count: atomic<u32>;
@compute @workgroup_size(1)
fn main() { atomicAdd(&count, 1u); }
"""
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


async def test_dispatches_between_copies_run_in_order(device: NativeDevice) -> None:
    pipeline = await device.pipeline(DOUBLE)
    first, second = device.buffer(8), device.buffer(8)
    device.write(first, 0, array.array("I", [1, 10]))
    double = Dispatch(pipeline, (first,), (1, 1, 1))
    copies = [Copy(first, 0, second, 4, 4), Copy(first, 4, second, 0, 4)]
    device.submit(device.record([double, *copies, double, double]))
    assert struct.unpack("<4I", await device.read(second, 0, 8) + await device.read(first, 0, 8)) == (20, 2, 8, 80)


async def test_a_recording_is_timed_by_the_device_and_runs_once(device: NativeDevice) -> None:
    pipeline = await device.pipeline(DOUBLE)
    buffer, kept, large = device.buffer(8), device.buffer(8), device.buffer(2**24)
    device.write(buffer, 0, array.array("I", [1, 10]))
    double = Dispatch(pipeline, (buffer,), (1, 1, 1))
    short = device.record([double, Copy(buffer, 0, kept, 0, 8), double])
    seconds = await device.time(short)
    assert struct.unpack("<2I", await device.read(buffer, 0, 8)) == (4, 40)
    long = await device.time(device.record([Dispatch(pipeline, (large,), (65535, 1, 1))] * 4))
    assert seconds is not None
    assert long is not None
    assert 0 <= seconds < long < 60
    assert await device.time(device.record([Copy(buffer, 0, kept, 0, 8)])) is None


async def test_a_device_without_a_clock_runs_a_recording_and_tells_no_time(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device(without_features=("timestamp-query",))
    buffer = device.buffer(4)
    device.write(buffer, 0, array.array("I", [3]))
    recording = device.record([Dispatch(await device.pipeline(DOUBLE), (buffer,), (1, 1, 1))])
    assert await device.time(recording) is None
    assert struct.unpack("<I", await device.read(buffer, 0, 4)) == (6,)


async def test_a_grid_may_come_from_a_buffer_that_an_earlier_dispatch_wrote(device: NativeDevice) -> None:
    count, double = await device.pipeline(COUNT_GROUPS), await device.pipeline(DOUBLE)
    grid, counter = device.buffer(16), device.buffer(16)
    device.write(grid, 0, array.array("I", [1, 2, 1]))
    counting = Dispatch(count, (counter,), (64, 64, 64), "count", indirect=grid)
    recording = device.record([Dispatch(double, (grid,), (1, 1, 1)), counting])
    for groups in (2 * 4 * 2, 4 * 8 * 4):
        device.write(counter, 0, bytes(16))
        device.submit(recording)
        assert struct.unpack("<I", await device.read(counter, 0, 4)) == (groups,)


async def test_data_may_be_anything_with_the_buffer_protocol(device: NativeDevice) -> None:
    buffer = device.buffer(24)
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    for data in (
        grid,
        grid.T,
        np.float32(7),
        array.array("d", [0.5]),
        memoryview(b"abcd")[::2],
        bytearray(b"xyz"),
        b"",
    ):
        device.write(buffer, 0, bytes(24))
        device.write(buffer, 0, data)
        expected = memoryview(data).tobytes()
        assert await device.read(buffer, 0, 24) == expected.ljust(24, b"\0")


@pytest.mark.parametrize(("offset", "length"), [(1, 4), (-4, 4), (12, 8), (0, 17), (16, 1)])
async def test_a_range_outside_a_buffer_or_unaligned_is_refused(device: NativeDevice, offset: int, length: int) -> None:
    buffer = device.buffer(16, "small")
    with pytest.raises(InvalidArgument, match="buffer 'small'"):
        device.write(buffer, offset, bytes(length))
    with pytest.raises(InvalidArgument, match="buffer 'small'"):
        device.read(buffer, offset, length)


async def test_a_range_of_a_source_is_uploaded_in_chunks(device: NativeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pageloom.backends.webgpu.native.UPLOAD_CHUNK", 64)
    data = bytes(range(256))
    buffer = device.buffer(208)
    await device.upload(buffer, 4, BytesSource(data), 17, 201)
    assert await device.read(buffer, 0, 208) == bytes(4) + data[17:218] + bytes(3)
    with pytest.raises(BadModelFile):
        await device.upload(buffer, 0, BytesSource(data), 100, 200)


async def test_a_shader_that_does_not_compile_raises_the_text_of_the_compiler(device: NativeDevice) -> None:
    with pytest.raises(DeviceError, match=r"(?s)shader 'bad' does not compile.*u32"):
        await device.pipeline("@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }", "bad")
    with pytest.raises(DeviceError, match="main"):
        await device.pipeline("@compute @workgroup_size(1) fn other() {}", "no entry point")


async def test_a_command_that_does_not_fit_is_refused(device: NativeDevice) -> None:
    pipeline = await device.pipeline(DOUBLE)
    buffer = device.buffer(16)
    with pytest.raises(DeviceError, match="recording 'too few'"):
        device.record([Dispatch(pipeline, (), (1, 1, 1))], "too few")
    for command in (Dispatch(pipeline, (buffer,), (65536, 1, 1)), Copy(buffer, 0, device.buffer(8), 0, 16)):
        with pytest.raises(DeviceError, match="recording 'too large'"):
            device.submit(device.record([command], "too large"))
    buffer.destroy()
    with pytest.raises(DeviceError):
        device.read(buffer, 0, 4)
    await device.settle()


async def test_a_buffer_that_is_refused_is_told_by_settle_once(device: NativeDevice) -> None:
    device.buffer(device.info.limits["maxBufferSize"] + 4, "huge")
    with pytest.raises(DeviceError, match="limit"):
        await device.settle()
    await device.settle()
    with pytest.raises(InvalidArgument):
        device.buffer(-1)


async def test_memory_that_runs_out_is_an_error_of_its_own(device: NativeDevice, driver: str) -> None:
    if driver == "lavapipe":
        pytest.skip("lavapipe promises memory that it does not have")
    buffers = [device.buffer(device.info.limits["maxBufferSize"]) for _ in range(16)]
    with pytest.raises(OutOfMemory):
        await device.settle()
    for buffer in buffers:
        buffer.destroy()


@pytest.mark.parametrize("how", ["closed", "lost"])
async def test_a_device_that_goes_during_a_read_is_gone_for_every_call(
    limited_device: Callable[..., Awaitable[NativeDevice]], how: str
) -> None:
    device = await limited_device()
    buffer = device.buffer(4)
    pipeline = await device.pipeline(DOUBLE)
    recording = device.record([Dispatch(pipeline, (buffer,), (1, 1, 1))])
    awaited, given_up = device.read(buffer, 0, 4), device.read(buffer, 0, 4)
    if how == "closed":
        device.close()
    else:
        device._handle.destroy()  # what a driver's reset looks like from here
    with pytest.raises(DeviceLost):
        await awaited
    del given_up
    for call in (
        lambda: device.buffer(4),
        lambda: device.write(buffer, 0, bytes(4)),
        lambda: device.record([]),
        lambda: device.submit(recording),
        lambda: device.read(buffer, 0, 4),
    ):
        with pytest.raises(DeviceLost, match="open another one"):
            call()
    for wait in (device.settle, device.idle, lambda: device.pipeline(DOUBLE)):
        with pytest.raises(DeviceLost):
            await wait()
    device.close()


async def test_limits_and_features_can_be_lowered(limited_device: Callable[..., Awaitable[NativeDevice]]) -> None:
    whole = await limited_device()
    lowered = {"maxComputeInvocationsPerWorkgroup": 64, "maxStorageBufferBindingSize": 4096}
    device = await limited_device(lowered, without_features=("shader-f16", "subgroups"))
    assert device.info.limits == {**whole.info.limits, **lowered}
    assert not device.info.has_f16
    assert not device.info.has_subgroups
    assert whole.info.has_subgroups
    assert whole.info.home == "native"
    assert whole.info.adapter_class == "software"
    for bad in ({"maxGlory": 1}, {"maxBufferSize": 2**60}, {"maxBufferSize": 0}):
        with pytest.raises(InvalidArgument, match=next(iter(bad))):
            await limited_device(bad)


async def test_many_steps_leave_nothing_behind(device: NativeDevice) -> None:
    pipeline = await device.pipeline(DOUBLE)
    buffer = device.buffer(256)
    recording = device.record([Dispatch(pipeline, (buffer,), (1, 1, 1))])

    async def run(steps: int) -> dict[str, int]:
        for step in range(steps):
            device.write(buffer, 0, array.array("I", [step]))
            device.submit(recording)
            if step % 4 == 0:
                pending = [device.read(buffer, 0, 4) for _ in range(3)]
                assert [struct.unpack("<I", await read)[0] for read in pending] == [2 * step] * 3
        await device.settle()
        gc.collect()
        kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
        return {kind: kinds[kind] for kind in kinds if kind.startswith(("GPU", "Native", "Staged", "Task", "Future"))}

    assert await run(20) == await run(1000)
    buffer.destroy()


async def test_reads_that_arrive_as_the_device_closes_are_told_so(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device({})
    buffer = device.buffer(1024)
    reads = [asyncio.ensure_future(device.read(buffer, 0, 1024)) for _ in range(8)]
    await device.idle()
    device.close()
    for result in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(result, DeviceLost) or result == bytes(1024)
