"""What the tests of the browser's WebGPU device run in the page; each function returns what a test looks at."""

from __future__ import annotations

import array
from typing import Any

import pyodide_js
from pyodide.code import run_js

from pageloom.backends.webgpu.browser import BrowserDevice, JsSource, open_browser_device, typed_errors
from pageloom.backends.webgpu.device import Copy, Dispatch
from pageloom.errors import PageloomError
from pageloom.model.source import BytesSource

DOUBLE = """
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&data)) { data[id.x] = 2u * data[id.x]; }
}
"""


async def open_device(**options: Any) -> BrowserDevice:
    return await open_browser_device(await run_js("import('/web/gpu.js')"), **options)


def said(error: PageloomError) -> list[str]:
    return [type(error).__name__, error.message]


async def describe(limits: dict[str, int]) -> dict[str, Any]:
    device = await open_device(limits=limits)
    info = device.info
    device.close()
    return {
        "home": info.home,
        "class": info.adapter_class,
        "limits": dict(info.limits),
        "half": info.has_f16,
        "subgroups": info.has_subgroups,
    }


async def refusal_to_open(options: dict[str, Any]) -> list[str]:
    try:
        await open_device(**options)
    except PageloomError as error:
        return said(error)
    return []


async def round_trips(lengths: list[int]) -> list[int]:
    """The lengths that came back otherwise than they were written."""
    device = await open_device()
    wrong = []
    for length in lengths:
        data = bytes((7 * i + 1) % 256 for i in range(length))
        buffer = device.buffer(length + 12)
        for form in (data, memoryview(data), array.array("B", data)):
            device.write(buffer, 0, b"\xff" * (length + 12))
            device.write(buffer, 4, form)
            padded = b"\xff" * 4 + data + bytes(-length % 4)
            if await device.read(buffer, 0, buffer.size) != padded.ljust(length + 12, b"\xff").ljust(
                buffer.size, b"\0"
            ):
                wrong.append(length)
        buffer.destroy()
    device.close()
    return wrong


async def timed() -> dict[str, Any]:
    """What two dispatches round a copy make of [1, 2], and their time; times of what has none."""
    found: dict[str, Any] = {}
    for without in ((), ("timestamp-query",)):
        device = await open_device(without_features=without)
        pipeline = await device.pipeline(DOUBLE)
        buffer, kept = device.buffer(8), device.buffer(8)
        device.write(buffer, 0, array.array("I", [1, 2]))
        double, copy = Dispatch(pipeline, (buffer,), (1, 1, 1)), Copy(buffer, 0, kept, 0, 8)
        found["without a clock" if without else "seconds"] = await device.time(device.record([double, copy, double]))
        found["of copies"] = await device.time(device.record([copy]))
        found["values"] = list(memoryview(await device.read(buffer, 0, 8)).cast("I"))
        device.close()
    return found


async def ordered_reads() -> list[list[int]]:
    device = await open_device()
    pipeline = await device.pipeline(DOUBLE)
    buffer, kept = device.buffer(16), device.buffer(16)
    device.write(buffer, 0, array.array("I", [1, 2, 3, 4]))
    double = Dispatch(pipeline, (buffer,), (1, 1, 1))
    recording = device.record([double, Copy(buffer, 0, kept, 0, 16), double])
    before = device.read(buffer, 0, 16)
    device.submit(recording)
    once, twice = device.read(kept, 0, 16), device.read(buffer, 0, 16)
    device.submit(recording)
    found = {name: await pending for name, pending in (("twice", twice), ("before", before), ("once", once))}
    device.close()
    return [list(memoryview(found[name]).cast("I")) for name in ("before", "once", "twice")]


async def indirect_grids() -> list[int]:
    """What a buffer of ones holds after a doubling dispatch of as many workgroups as another buffer says: 1, then 2."""
    device = await open_device()
    pipeline = await device.pipeline(DOUBLE)
    buffer, grid = device.buffer(4 * 192), device.buffer(16)
    device.write(buffer, 0, array.array("I", [1] * 192))
    recording = device.record([Dispatch(pipeline, (buffer,), (3, 1, 1), indirect=grid)])
    for groups in (1, 2):
        device.write(grid, 0, array.array("I", [groups, 1, 1]))
        device.submit(recording)
    found = memoryview(await device.read(buffer, 0, buffer.size)).cast("I")
    device.close()
    return [found[0], found[64], found[128]]


async def refusals() -> list[list[str]]:
    """What a bad shader, a buffer past the limit, and a dispatch with a missing buffer raise."""
    device = await open_device()
    heard = []

    async def bad_shader() -> None:
        await device.pipeline("fn main() { let x: u32 = 1.5; }", "bad")

    async def large_buffer() -> None:
        device.buffer(device.info.limits["maxBufferSize"] + 4, "large")
        await device.settle()

    async def missing_binding() -> None:
        device.submit(device.record([Dispatch(await device.pipeline(DOUBLE), (), (1, 1, 1))]))
        await device.settle()

    async def outside() -> None:
        device.write(device.buffer(8), 4, bytes(8))

    for attempt in (bad_shader, large_buffer, missing_binding, outside):
        try:
            await attempt()
        except PageloomError as error:
            heard.append(said(error))
    await device.settle()
    device.close()
    return heard


async def lost_in_a_read() -> list[str]:
    """The error classes of a read that was under way, and of every call after it."""
    device = await open_device()
    buffer = device.buffer(4)
    recording = device.record([])
    pending = device.read(buffer, 0, 4)
    device.close()
    heard = []
    attempts = [
        lambda: pending,
        lambda: device.read(buffer, 0, 4),
        lambda: device.write(buffer, 0, bytes(4)),
        lambda: device.submit(recording),
        lambda: device.buffer(4),
        lambda: device.pipeline(DOUBLE),
        device.settle,
        device.idle,
    ]
    for attempt in attempts:
        try:
            result = attempt()
            heard.append(f"returned {await result if hasattr(result, '__await__') else result}")
        except PageloomError as error:
            heard.append(type(error).__name__)
    device.close()
    return heard


async def uploads(url: str, offset: int, length: int, digits: int) -> dict[str, bool]:
    """Whether a range of the file at `url` arrives whole on the device, from each kind of source."""
    sources = await run_js("import('/web/sources.js')")
    whole = bytes((await (await run_js("(url) => fetch(url)")(url)).arrayBuffer()).to_py())
    blob = await run_js("async (url) => (await fetch(url)).blob()")(url)
    device = await open_device()
    found = {}
    seen = run_js("[]")
    progress = run_js("(seen) => (done, size) => seen.push([done, size])")(seen)
    for name, source in {
        "blob": JsSource(sources.BlobSource.new(blob)),
        "url": JsSource(await sources.UrlSource.open(url)),
        "progress": JsSource(sources.withProgress(sources.BlobSource.new(blob), progress)),
        "bytes": BytesSource(whole),
    }.items():
        buffer = device.buffer(length + 4)
        await device.upload(buffer, 4, source, offset, length)
        data = bytes(4) + whole[offset : offset + length]
        found[name] = await device.read(buffer, 0, length + 4) == data and source.size == len(whole)
        found[f"{name} read"] = await source.read(offset, digits) == whole[offset : offset + digits]
        buffer.destroy()
    found["progress told"] = list(seen.to_py()[-1]) == [length + digits, len(whole)]
    device.close()
    return found


async def source_refusals(url: str) -> list[list[str]]:
    """What a range past the end raises, from a Blob and a URL, and a URL without a file."""
    sources = await run_js("import('/web/sources.js')")
    blob = JsSource(sources.BlobSource.new(run_js("new Blob(['abc'])")))
    remote = JsSource(await sources.UrlSource.open(url))

    async def open_missing() -> None:
        with typed_errors():
            await sources.UrlSource.open(f"{url}.missing")

    heard = []
    for attempt in (lambda: blob.read(1, 3), lambda: remote.read(remote.size, 1), open_missing):
        try:
            await attempt()
        except PageloomError as error:
            heard.append(said(error))
    return heard


async def growth(steps: int, reads: int) -> dict[str, int]:
    """By how much the references between the two languages, and the bridge's own counts, grow over many steps."""
    module = pyodide_js._module
    module.enable_pyproxy_allocation_tracing()
    device = await open_device()
    pipeline = await device.pipeline(DOUBLE)
    buffer = device.buffer(256)
    recording = device.record([Dispatch(pipeline, (buffer,), (1, 1, 1))])

    def counts() -> dict[str, int]:
        bridge = device._gpu.counts.to_py()
        return {**bridge, "to JavaScript": module.pyproxy_alloc_map.size, "to Python": module._hiwire_num_refs()}

    async def run(number: int, every: int) -> None:
        for step in range(number):
            device.write(buffer, 0, array.array("I", [step]))
            device.submit(recording)
            if step % every == 0:
                await device.read(buffer, 0, 4)
        await device.idle()

    await run(20, 1)
    before = counts()
    await run(steps, steps // reads)
    after = counts()
    device.close()
    return {name: after[name] - before[name] for name in before}
