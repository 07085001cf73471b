"""The native home of the WebGPU device: Dawn, through the `wgpudawn` package."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Any, Literal

from pageloom.backends.webgpu import native_drivers
from pageloom.backends.webgpu.device import (
    AdapterClass,
    Buffer,
    Copy,
    DeviceInfo,
    Dispatch,
    Pipeline,
    Recording,
    check_range,
)
from pageloom.backends.webgpu.native_staging import StagingPool
from pageloom.errors import DeviceError, DeviceLost, InvalidArgument, NotSupported, OutOfMemory
from pageloom.model.source import RangedSource

USEFUL_FEATURES = frozenset({"shader-f16", "subgroups", "subgroup-size-control", "timestamp-query"})
UPLOAD_CHUNK = 8 * 2**20


class NativeBuffer:
    """A `device.Buffer` on Dawn."""

    __slots__ = ("handle", "label", "size")

    def __init__(self, handle: Any, size: int, label: str) -> None:
        self.handle = handle
        self.size = size
        self.label = label

    def destroy(self) -> None:
        self.handle.destroy()


class NativePipeline:
    """A `device.Pipeline` on Dawn."""

    __slots__ = ("handle", "label", "layout")

    def __init__(self, handle: Any, label: str) -> None:
        self.handle = handle
        self.label = label
        self.layout = handle.get_bind_group_layout(0)


class NativeRecording:
    """Runs of commands: each a compute pass of (pipeline, bind group, grid), or a list of copies."""

    __slots__ = ("label", "runs")

    def __init__(self, runs: list[_Pass | _Copies], label: str) -> None:
        self.runs = runs
        self.label = label


class _Pass(list[tuple[Any, Any, tuple[int, int, int]]]):
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


class _Copies(list[tuple[Any, int, Any, int, int]]):
    def encode(self, encoder: Any) -> None:
        for copy in self:
            encoder.copy_buffer_to_buffer(*copy)


class NativeDevice:
    """`device.Device` on Dawn. Dawn reports a refused command at once, so `record` and `submit` raise themselves."""

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
        handle = _native(buffer).handle
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
        module_error = await self._await(self._handle.pop_error_scope_async())
        if module_error is not None:
            raise DeviceError(f"shader {label!r} does not compile: {module_error.message}")
        stage = {"module": module, "entry_point": "main"}
        promise = self._handle.create_compute_pipeline_async(label=label, layout="auto", compute=stage)
        try:
            handle = await promise
        except RuntimeError as error:
            self._check_present()
            raise DeviceError(f"pipeline {label!r} is refused: {error}") from error
        return NativePipeline(handle, label)

    def record(self, commands: Sequence[Dispatch | Copy], label: str = "") -> NativeRecording:
        self._check_present()
        runs: list[_Pass | _Copies] = []
        try:
            for kind, group in itertools.groupby(commands, key=type):
                if kind is Dispatch:
                    runs.append(_Pass(map(self._encoded_dispatch, group)))
                else:
                    runs.append(_Copies(map(_encoded_copy, group)))
        except self._wgpu.GPUError as error:
            raise DeviceError(f"recording {label!r} is refused: {error}") from error
        return NativeRecording(runs, label)

    def submit(self, recording: Recording) -> None:
        self._check_present()
        assert isinstance(recording, NativeRecording)
        encoder = self._handle.create_command_encoder(label=recording.label)
        try:
            for run in recording.runs:
                run.encode(encoder)
            self._queue.submit([encoder.finish()])
        except self._wgpu.GPUError as error:
            raise DeviceError(f"recording {recording.label!r} is refused: {error}") from error

    def read(self, buffer: Buffer, offset: int, size: int) -> Awaitable[bytes]:
        self._check_present()
        check_range(buffer, offset, size)
        return asyncio.ensure_future(self._arrival(self._staging.copy(_native(buffer).handle, offset, size), size))

    async def _arrival(self, staged: Any, size: int) -> bytes:
        await self._await(staged.promise)
        return self._staging.take(staged, size)

    async def settle(self) -> None:
        self._check_present()
        creations, self._creations = self._creations, []
        errors = [error for promise in creations if (error := await self._await(promise)) is not None]
        for error in errors:
            kind = OutOfMemory if isinstance(error, self._wgpu.GPUOutOfMemoryError) else DeviceError
            raise kind(f"the device refuses a buffer: {error.message}")

    async def idle(self) -> None:
        self._check_present()
        await self._await(self._queue.on_submitted_work_done_async())

    def close(self) -> None:
        self._lost = self._lost or "it was closed"
        self._handle.destroy()

    def _encoded_dispatch(self, command: Any) -> tuple[Any, Any, tuple[int, int, int]]:
        pipeline = _native_pipeline(command.pipeline)
        entries = [
            {"binding": binding, "resource": {"buffer": _native(buffer).handle}}
            for binding, buffer in enumerate(command.buffers)
        ]
        bind_group = self._handle.create_bind_group(label=command.label, layout=pipeline.layout, entries=entries)
        return pipeline.handle, bind_group, command.grid

    def _check_present(self) -> None:
        if self._lost is not None:
            raise DeviceLost(f"the WebGPU device is gone: {self._lost}; open another one")

    async def _await(self, promise: Any) -> Any:
        """The result of a promise of Dawn's that fails only when the device is lost."""
        try:
            result = await promise
        except RuntimeError as error:
            self._lost = self._lost or str(error)
            raise DeviceLost(f"the WebGPU device is gone: {self._lost}; open another one") from error
        return result


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
    shows the lowered ones; Dawn itself enforces none below WebGPU's defaults). `without_features` are not asked for.
    Raises `NotSupported` where no adapter is left, `InvalidArgument` for a limit that the adapter does not reach.
    """
    native_drivers.prepare_environment()
    try:
        import wgpudawn as wgpu  # noqa: PLC0415 - optional, and the environment must be ready first
    except ImportError as error:
        raise NotSupported(
            "the native WebGPU device needs the package wgpudawn: pip install pageloom[native]"
        ) from error

    found = wgpu.gpu.enumerate_adapters_sync()
    chosen = _choose(found, prefer, adapter)
    offered = {webgpu_name(name): value for name, value in chosen.limits.items()}
    lowered = _checked(limits or {}, offered)
    features = sorted((USEFUL_FEATURES & set(chosen.features)) - set(without_features))
    handle = await chosen.request_device_async(required_features=features, required_limits={**offered, **lowered})
    actual = {webgpu_name(name): value for name, value in handle.limits.items()}
    info = DeviceInfo(
        vendor=chosen.info["vendor"],
        architecture=chosen.info["architecture"],
        description=chosen.summary,
        home="native",
        adapter_class=adapter_class(chosen),
        features=frozenset(handle.features),
        limits={**actual, **lowered},
    )
    return NativeDevice(wgpu, handle, info)


def adapter_class(adapter: Any) -> AdapterClass:
    return "software" if adapter.info["adapter_type"] == "CPU" else "gpu"


def webgpu_name(name: str) -> str:
    """WebGPU's name of a limit from wgpu-py's: `max-texture-dimension-1d` -> `maxTextureDimension1D`."""
    first, *rest = name.split("-")
    return first + "".join(part.upper() if part[0].isdigit() else part.capitalize() for part in rest)


def _choose(found: Sequence[Any], prefer: AdapterClass | None, name: str | None) -> Any:
    order: list[Literal["DiscreteGPU", "IntegratedGPU", "Unknown", "CPU"]]
    order = ["DiscreteGPU", "IntegratedGPU", "Unknown", "CPU"]
    allowed = [
        adapter
        for adapter in found
        if "core-features-and-limits" in adapter.features
        and prefer in (None, adapter_class(adapter))
        and (name or "").lower() in adapter.summary.lower()
    ]
    if not allowed:
        wanted = " ".join(filter(None, [prefer, f"named {name!r}" if name else ""])) or "of any kind"
        present = "; ".join(adapter.summary for adapter in found) or "none"
        raise NotSupported(
            f"no WebGPU adapter {wanted} (present: {present}); install a Vulkan driver, or Chromium, whose software "
            "driver is used where there is no GPU"
        )
    return min(allowed, key=lambda adapter: order.index(adapter.info["adapter_type"]))


def _checked(limits: Mapping[str, int], offered: Mapping[str, int]) -> dict[str, int]:
    for name, value in limits.items():
        if name not in offered:
            raise InvalidArgument(f"{name!r} is no WebGPU limit; known: {', '.join(sorted(offered))}", param="limits")
        if name.startswith("max") and not 0 < value <= offered[name]:
            raise InvalidArgument(f"{name} = {value}: the adapter allows 1 to {offered[name]}", param="limits")
    return dict(limits)


def _encoded_copy(command: Any) -> tuple[Any, int, Any, int, int]:
    source, target = _native(command.source).handle, _native(command.target).handle
    return source, command.source_offset, target, command.target_offset, command.size


def _native(buffer: Buffer) -> NativeBuffer:
    if not isinstance(buffer, NativeBuffer):
        raise InvalidArgument(f"buffer {buffer.label!r} is of another device")
    return buffer


def _native_pipeline(pipeline: Pipeline) -> NativePipeline:
    if not isinstance(pipeline, NativePipeline):
        raise InvalidArgument("the pipeline is of another device")
    return pipeline
