"""The browser's home of the WebGPU device: `web/src/gpu.js` does the work, one call for each of Python's."""

from __future__ import annotations

import array
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyodide_js
from js import Object
from pyodide.ffi import JsException, to_js

from pageloom import errors
from pageloom.backends.webgpu.device import (
    AdapterClass,
    Buffer,
    Copy,
    DeviceInfo,
    Dispatch,
    Pipeline,
    Recording,
    check_range,
    in_background,
)
from pageloom.backends.webgpu.thread_order import usable_info
from pageloom.errors import DeviceError, InvalidArgument
from pageloom.model.source import RangedSource

UPLOAD_CHUNK = 4 * 2**20
KINDS: dict[str, type[errors.PageloomError]] = {
    kind.__name__: kind
    for kind in (
        errors.InvalidArgument,
        errors.NotSupported,
        errors.BadModelFile,
        errors.DeviceError,
        errors.OutOfMemory,
        errors.DeviceLost,
    )
}


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise the project's errors for what the bridge throws, and `DeviceError` for what the browser throws."""
    try:
        yield
    except JsException as error:
        raise KINDS.get(error.name, DeviceError)(error.message) from error


class JsSource:
    """A `RangedSource` over a JavaScript one (`web/src/sources.js`)."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self._size = int(source.size)

    @property
    def size(self) -> int:
        return self._size

    async def read(self, offset: int, length: int) -> bytes:
        with typed_errors():
            data: bytes = (await self.source.read(offset, length)).to_bytes()
        return data

    def close(self) -> None:
        """Nothing is held open."""


class BrowserBuffer:
    """A `device.Buffer` in the browser."""

    __slots__ = ("handle", "label", "size")

    def __init__(self, handle: Any, size: int, label: str) -> None:
        self.handle = handle
        self.size = size
        self.label = label

    def destroy(self) -> None:
        self.handle.destroy()


class BrowserHandle:
    """A `device.Pipeline` or a `device.Recording` in the browser."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = handle


def device_info(described: Any) -> DeviceInfo:
    """From what `describeAdapter` of `web/src/gpu_adapter.js` tells."""
    info = described.to_py()
    return DeviceInfo(
        vendor=info["vendor"],
        architecture=info["architecture"],
        description=info["description"],
        home="browser",
        adapter_class=info["adapterClass"],
        features=frozenset(info["features"]),
        limits=info["limits"],
        subgroup_min_size=info["subgroupMinSize"],
        subgroup_max_size=info["subgroupMaxSize"],
        matrix_shapes=frozenset(tuple(shape) for shape in info["matrixShapes"]),
        language_features=frozenset(info["languageFeatures"]),
    )


class BrowserDevice:
    """`device.Device` in the browser. The browser reports a refused command later: in `settle`, `idle` or `read`."""

    def __init__(self, gpu: Any) -> None:
        gpu.useMemory(pyodide_js._module)
        self._gpu = gpu
        # Methods are looked up once: an attribute of a JavaScript object costs as much as a call.
        self._write, self._submit, self._read = gpu.write, gpu.submit, gpu.read
        self._info = device_info(gpu.info)

    @property
    def info(self) -> DeviceInfo:
        return self._info

    async def check_threads(self) -> None:
        """Do without subgroups from now on where `thread_order` finds that programs cannot rely on them."""
        self._info = await usable_info(self)

    def buffer(self, size: int, label: str = "") -> BrowserBuffer:
        if size < 0:
            raise InvalidArgument(f"a buffer's size is {size} bytes; it must not be negative", param="size")
        size = max(4, (size + 3) & ~3)
        with typed_errors():
            return BrowserBuffer(self._gpu.createBuffer(size, label), size, label)

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        # The bridge reads Python's memory by address, and an array tells its address.
        words = data if isinstance(data, array.array) else array.array("B", memoryview(data).tobytes())
        address, count = words.buffer_info()
        length = count * words.itemsize
        check_range(buffer, offset, length)
        with typed_errors():
            self._write(_buffer(buffer), offset, address, length)

    async def upload(self, buffer: Buffer, offset: int, source: RangedSource, source_offset: int, length: int) -> None:
        check_range(buffer, offset, length)
        if isinstance(source, JsSource):
            with typed_errors():
                await self._gpu.upload(_buffer(buffer), offset, source.source, source_offset, length)
            return
        for start in range(0, length, UPLOAD_CHUNK):
            chunk = await source.read(source_offset + start, min(UPLOAD_CHUNK, length - start))
            self.write(buffer, offset + start, chunk)
            await self.idle()

    async def pipeline(self, code: str, label: str = "") -> BrowserHandle:
        with typed_errors():
            return BrowserHandle(await self._gpu.createPipeline(code, label))

    def record(self, commands: Sequence[Dispatch | Copy], label: str = "") -> BrowserHandle:
        with typed_errors():
            recording = self._gpu.startRecording(label)
            dispatch, copy = recording.dispatch, recording.copy
            # Plain arguments: turning a dictionary into a JavaScript object costs more than making a bind group.
            for one in commands:
                if isinstance(one, Dispatch) and one.indirect is not None:
                    grid = _buffer(one.indirect)
                    recording.dispatchIndirect(_handle(one.pipeline), grid, one.label, *map(_buffer, one.buffers))
                elif isinstance(one, Dispatch):
                    dispatch(_handle(one.pipeline), *one.grid, one.label, *map(_buffer, one.buffers))
                else:
                    source, target = _buffer(one.source), _buffer(one.target)
                    copy(source, one.source_offset, target, one.target_offset, one.size)
        return BrowserHandle(recording)

    def submit(self, recording: Recording) -> None:
        with typed_errors():
            self._submit(_handle(recording))

    async def time(self, recording: Recording) -> float | None:
        with typed_errors():
            seconds = await self._gpu.time(_handle(recording))
        return None if seconds < 0 else float(seconds)

    def read(self, buffer: Buffer, offset: int, size: int) -> Awaitable[bytes]:
        check_range(buffer, offset, size)
        with typed_errors():
            return in_background(_arrival(self._read(_buffer(buffer), offset, size)))

    async def settle(self) -> None:
        with typed_errors():
            await self._gpu.settle()

    async def idle(self) -> None:
        with typed_errors():
            await self._gpu.idle()

    def close(self) -> None:
        self._gpu.close()


async def open_browser_device(
    bridge: Any,
    *,
    prefer: AdapterClass | None = None,
    limits: Mapping[str, int] | None = None,
    without_features: Collection[str] = (),
) -> BrowserDevice:
    """Open a device of the browser's, with everything its adapter offers. `bridge` is the module `web/src/bridge.js`.

    The arguments mean what they mean to `native.open_native_device`.
    Raises `NotSupported` where the browser has no WebGPU or no such adapter, `InvalidArgument` for a limit that the
    adapter does not reach.
    """
    options = {"prefer": prefer, "limits": dict(limits or {}), "withoutFeatures": list(without_features)}
    with typed_errors():
        device = BrowserDevice(await bridge.openGpu(to_js(options, dict_converter=Object.fromEntries)))
    await device.check_threads()
    return device


async def _arrival(promise: Any) -> bytes:
    with typed_errors():
        data: bytes = (await promise).to_bytes()
    return data


def _buffer(buffer: Buffer) -> Any:
    if not isinstance(buffer, BrowserBuffer):
        raise InvalidArgument(f"buffer {buffer.label!r} is of another home")
    return buffer.handle


def _handle(held: Pipeline | Recording) -> Any:
    if not isinstance(held, BrowserHandle):
        raise InvalidArgument("the pipeline or recording is of another home")
    return held.handle
