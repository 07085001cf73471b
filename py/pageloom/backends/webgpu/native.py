"""The native home of the WebGPU device: Dawn, through the `wgpudawn` package."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pageloom.backends.webgpu import native_drivers
from pageloom.backends.webgpu.device import (
    SUBGROUP_MATRICES,
    AdapterClass,
    Buffer,
    Copy,
    DeviceInfo,
    Dispatch,
    Recording,
    check_range,
    in_background,
)
from pageloom.backends.webgpu.native_adapters import (
    adapter_class,
    check_limits,
    choose_adapter,
    language_features,
    matrix_shapes,
    subgroup_sizes,
    webgpu_limits,
)
from pageloom.backends.webgpu.native_commands import (
    BoundDispatch,
    ComputePass,
    Copies,
    NativeBuffer,
    NativePipeline,
    NativeRecording,
    ResolvedCopy,
)
from pageloom.backends.webgpu.native_staging import Staged, StagingPool
from pageloom.backends.webgpu.thread_order import usable_info
from pageloom.errors import DeviceError, DeviceLost, InvalidArgument, NotSupported, OutOfMemory
from pageloom.model.source import RangedSource

USEFUL_FEATURES = frozenset({"shader-f16", "subgroups", "timestamp-query", SUBGROUP_MATRICES})
UPLOAD_CHUNK = 8 * 2**20


class NativeDevice:
    """`device.Device` on Dawn. Dawn refuses a bad command at once: `record`, `submit`, `write` and `read` raise it."""

    def __init__(self, wgpu: Any, handle: Any, info: DeviceInfo) -> None:
        self._wgpu = wgpu
        self._handle = handle
        self._queue = handle.queue
        self._info = info
        self._lost: str | None = None
        self._creations: list[Any] = []
        self._staging = StagingPool(wgpu, handle)
        usage = wgpu.BufferUsage
        self._usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST | usage.INDIRECT

    @property
    def info(self) -> DeviceInfo:
        return self._info

    async def check_threads(self) -> None:
        """Do without subgroups from now on where `thread_order` finds that programs cannot rely on them."""
        self._info = await usable_info(self)

    def buffer(self, size: int, label: str = "") -> NativeBuffer:
        self._check_present()
        if size < 0:
            raise InvalidArgument(f"a buffer's size is {size} bytes; it must not be negative", param="size")
        size = max(4, (size + 3) & ~3)
        self._handle.push_error_scope("out-of-memory")
        self._handle.push_error_scope("validation")
        handle = self._handle.create_buffer(label=label, size=size, usage=self._usage)
        self._creations += [self._handle.pop_error_scope_async(), self._handle.pop_error_scope_async()]
        return NativeBuffer(handle, size, label)

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        self._check_present()
        view = memoryview(data)
        length = view.nbytes
        check_range(buffer, offset, length)
        if not length:
            return
        view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        aligned = length & ~3
        handle = _handle(buffer)
        with self._refusals(f"a write to buffer {buffer.label!r}"):
            if aligned:
                self._queue.write_buffer(handle, offset, view[:aligned])
            if aligned != length:
                self._queue.write_buffer(handle, offset + aligned, bytes(view[aligned:]).ljust(4, b"\0"))

    async def upload(self, buffer: Buffer, offset: int, source: RangedSource, source_offset: int, length: int) -> None:
        check_range(buffer, offset, length)
        for start in range(0, length, UPLOAD_CHUNK):
            chunk = await source.read(source_offset + start, min(UPLOAD_CHUNK, length - start))
            self.write(buffer, offset + start, chunk)
            await self.idle()  # a queued write holds a copy of its bytes until it has run

    async def pipeline(self, code: str, label: str = "") -> NativePipeline:
        self._check_present()
        self._handle.push_error_scope("validation")
        module = self._handle.create_shader_module(label=label, code=code)
        error = await self._await(self._handle.pop_error_scope_async())
        if error is not None:
            raise DeviceError(f"shader {label!r} does not compile: {error.message}")
        stage = {"module": module, "entry_point": "main"}
        promise = self._handle.create_compute_pipeline_async(label=label, layout="auto", compute=stage)
        try:
            handle = await promise
        except RuntimeError as refusal:
            await self.idle()  # a lost device refuses too, and is another error
            raise DeviceError(f"the device refuses pipeline {label!r}: {refusal}") from refusal
        return NativePipeline(handle, handle.get_bind_group_layout(0))

    def record(self, commands: Sequence[Dispatch | Copy], label: str = "") -> NativeRecording:
        self._check_present()
        with self._refusals(f"recording {label!r}"):
            runs = [
                ComputePass(map(self._bound, group)) if kind is Dispatch else Copies(map(_resolved, group))
                for kind, group in itertools.groupby(commands, key=type)
            ]
        return NativeRecording(runs, label)

    def submit(self, recording: Recording) -> None:
        self._check_present()
        if not isinstance(recording, NativeRecording):
            raise InvalidArgument("the recording is of another home")
        with self._refusals(f"recording {recording.label!r}"):
            encoder = self._handle.create_command_encoder(label=recording.label)
            recording.encode(encoder)
            self._queue.submit([encoder.finish()])

    async def time(self, recording: Recording) -> float | None:
        if "timestamp-query" not in self._info.features:
            self.submit(recording)
            return None
        self._check_present()
        if not isinstance(recording, NativeRecording):
            raise InvalidArgument("the recording is of another home")
        with self._refusals(f"to time recording {recording.label!r}"):
            times = self._handle.create_query_set(type="timestamp", count=2)
            usage = self._wgpu.BufferUsage.QUERY_RESOLVE | self._wgpu.BufferUsage.COPY_SRC
            nanoseconds = self._handle.create_buffer(size=16, usage=usage)
            encoder = self._handle.create_command_encoder(label=recording.label)
            has_dispatch = recording.encode(encoder, times)
            if has_dispatch:
                encoder.resolve_query_set(times, 0, 2, nanoseconds, 0)
            self._queue.submit([encoder.finish()])
            staged = self._staging.copy(nanoseconds, 0, 16)
        begun, ended = struct.unpack("<2Q", await self._arrival(staged, 16))
        times.destroy()
        nanoseconds.destroy()
        return float((ended - begun) * 1e-9) if has_dispatch else None

    def read(self, buffer: Buffer, offset: int, size: int) -> Awaitable[bytes]:
        self._check_present()
        check_range(buffer, offset, size)
        with self._refusals(f"a read of buffer {buffer.label!r}"):
            staged = self._staging.copy(_handle(buffer), offset, size)
        return in_background(self._arrival(staged, size))

    async def _arrival(self, staged: Staged, size: int) -> bytes:
        await self._await(staged.promise)
        # A device that was closed since then has taken the mapped memory with it.
        self._check_present()
        return self._staging.take(staged, size)

    async def settle(self) -> None:
        self._check_present()
        creations, self._creations = self._creations, []
        errors = [error for promise in creations if (error := await self._await(promise)) is not None]
        if errors:
            raise self._typed(errors[0], "a buffer")

    async def idle(self) -> None:
        self._check_present()
        with self._refusals("to go on"):
            promise = self._queue.on_submitted_work_done_async()
        await self._await(promise)

    def close(self) -> None:
        self._lost = self._lost or "it was closed"
        self._handle.destroy()

    def _bound(self, command: Any) -> BoundDispatch:
        pipeline = command.pipeline
        if not isinstance(pipeline, NativePipeline):
            raise InvalidArgument("the pipeline is of another home")
        entries = [
            {"binding": binding, "resource": {"buffer": _handle(buffer)}}
            for binding, buffer in enumerate(command.buffers)
        ]
        bind_group = self._handle.create_bind_group(label=command.label, layout=pipeline.layout, entries=entries)
        indirect = None if command.indirect is None else _handle(command.indirect)
        return pipeline.handle, bind_group, command.grid, indirect

    def _check_present(self) -> None:
        if self._lost is not None:
            raise self._gone()

    def _gone(self) -> DeviceLost:
        return DeviceLost(f"the WebGPU device is gone: {self._lost}; open another one")

    async def _await(self, promise: Any) -> Any:
        """The result of a promise of Dawn's that fails only when the device is lost."""
        try:
            return await promise
        except RuntimeError as error:
            self._lost = self._lost or str(error)
            raise self._gone() from error

    @contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        """Raise the project's errors for what Dawn refuses inside."""
        try:
            yield
        except self._wgpu.GPUError as error:
            raise self._typed(error, what) from error

    def _typed(self, error: Any, what: str) -> DeviceError:
        if "[Device] is lost" in error.message:
            self._lost = self._lost or error.message
            return self._gone()
        kind = OutOfMemory if isinstance(error, self._wgpu.GPUOutOfMemoryError) else DeviceError
        return kind(f"the device refuses {what}: {error.message}")


async def open_native_device(
    *,
    prefer: AdapterClass | None = None,
    adapter: str | None = None,
    limits: Mapping[str, int] | None = None,
    without_features: Collection[str] = (),
) -> NativeDevice:
    """Open a device on Dawn, with everything its adapter offers.

    `prefer` allows only adapters of that class; without it a GPU comes before a software adapter. `adapter` allows only
    adapters whose summary contains that text, in any case. `limits` lowers limits by their WebGPU names (`info` then
    shows the lowered ones; Dawn itself enforces none below WebGPU's defaults). `without_features`, of the device or of
    WGSL, are not asked for.
    Raises `NotSupported` where no adapter is left, `InvalidArgument` for a limit that the adapter does not reach.
    """
    native_drivers.prepare_environment()
    try:
        import wgpudawn as wgpu  # noqa: PLC0415 - optional, and the environment must be ready first
    except ImportError as error:
        raise NotSupported("native WebGPU needs the package wgpudawn: pip install 'pageloom[native]'") from error

    native_drivers.allow_experimental_features()
    chosen = choose_adapter(wgpu.gpu.enumerate_adapters_sync(), prefer, adapter)
    offered, lowered = webgpu_limits(chosen.limits), dict(limits or {})
    check_limits(lowered, offered)
    features = sorted((USEFUL_FEATURES & set(chosen.features)) - set(without_features))
    # In a thread, since a driver takes its time to start; and so that the promise of the device's loss, which may be
    # kept long after this event loop has closed, is not tied to it.
    handle = await asyncio.to_thread(
        chosen.request_device_sync, required_features=features, required_limits={**offered, **lowered}
    )
    smallest, largest = subgroup_sizes(chosen) if "subgroups" in handle.features else (0, 0)
    info = DeviceInfo(
        vendor=chosen.info["vendor"],
        architecture=chosen.info["architecture"],
        description=chosen.summary,
        home="native",
        adapter_class=adapter_class(chosen),
        features=frozenset(handle.features),
        limits={**webgpu_limits(handle.limits), **lowered},
        subgroup_min_size=smallest,
        subgroup_max_size=largest,
        matrix_shapes=matrix_shapes(chosen) if SUBGROUP_MATRICES in handle.features else frozenset(),
        language_features=language_features() - set(without_features),
    )
    device = NativeDevice(wgpu, handle, info)
    await device.check_threads()
    return device


def _resolved(command: Any) -> ResolvedCopy:
    source, target = _handle(command.source), _handle(command.target)
    return source, command.source_offset, target, command.target_offset, command.size


def _handle(buffer: Buffer) -> Any:
    if not isinstance(buffer, NativeBuffer):
        raise InvalidArgument(f"buffer {buffer.label!r} is of another home")
    return buffer.handle
