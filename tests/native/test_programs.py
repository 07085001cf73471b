"""Programs compile once for whoever asks, and linear indices cover a split grid."""

from __future__ import annotations

import asyncio
import math

import jinja2
import numpy as np
import pytest

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.device import Dispatch
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.errors import DeviceError, InvalidArgument

SELF_TEST = ProgramKey.of("lib/self_test.wgsl.j2", size=8)


async def test_callers_of_one_key_share_one_compilation(device: NativeDevice) -> None:
    programs = ProgramCache(device)
    first, second = await asyncio.gather(programs.pipeline(SELF_TEST), programs.pipeline(SELF_TEST))
    assert first is second is await programs.pipeline(ProgramKey.of("lib/self_test.wgsl.j2", size=8))
    assert first is not await programs.pipeline(ProgramKey.of("lib/self_test.wgsl.j2", size=16))
    assert len(programs) == 2


async def test_a_caller_that_gives_up_leaves_the_compilation_to_the_others(device: NativeDevice) -> None:
    programs = ProgramCache(device)
    hasty, patient = (asyncio.ensure_future(programs.pipeline(SELF_TEST)) for _ in range(2))
    await asyncio.sleep(0)
    hasty.cancel()
    assert await patient is await programs.pipeline(SELF_TEST)
    assert hasty.cancelled()
    assert len(programs) == 1


async def test_a_program_that_does_not_compile_is_an_error_each_time_and_kept_never(device: NativeDevice) -> None:
    programs = ProgramCache(device)
    too_large = ProgramKey.of("lib/self_test.wgsl.j2", size=device.info.limits["maxComputeWorkgroupSizeX"] + 1)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"lib/self_test\.wgsl\.j2\(size="):
            await programs.pipeline(too_large)
    with pytest.raises(InvalidArgument, match="not given: size"):
        await programs.pipeline(ProgramKey.of("lib/self_test.wgsl.j2"))
    assert len(programs) == 0


@pytest.mark.parametrize(("count", "per_dimension"), [(1, 7), (7, 7), (8, 7), (50, 7), (343, 7), (70_000, 65535)])
async def test_each_linear_index_of_a_split_grid_comes_once(
    device: NativeDevice, count: int, per_dimension: int
) -> None:
    source = """
    {% import "lib/grid.wgsl.j2" as grid %}
    @group(0) @binding(0) var<storage, read_write> seen: array<atomic<u32>>;
    @compute @workgroup_size(1)
    fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
      let index = {{ grid.linear_index("group", "groups") }};
      if (index < arrayLength(&seen)) { atomicAdd(&seen[index], 1u); }
    }
    """
    shipped = jinja2.FileSystemLoader(templates.templates_folder())
    loader = jinja2.ChoiceLoader([jinja2.DictLoader({"main": source}), shipped])
    pipeline = await device.pipeline(templates.TemplateSet(loader).render("main", {}))
    grid = split_grid(count, per_dimension)
    seen = device.buffer(4 * math.prod(grid))
    device.submit(device.record([Dispatch(pipeline, (seen,), grid)]))
    counts = np.frombuffer(await device.read(seen, 0, seen.size), np.uint32)
    np.testing.assert_array_equal(counts, 1)
    seen.destroy()
