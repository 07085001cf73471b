"""Half-precision storage: the same bytes and the same rounding, with the `f16` type and without it."""

from __future__ import annotations

import numpy as np
import pytest

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.device import Dispatch
from pageloom.backends.webgpu.native import NativeDevice

STORE = """
@group(0) @binding(0) var<storage, read> floats: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> fours: array<Stored4>;
@group(0) @binding(2) var<storage, read_write> twos: array<Stored2>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= arrayLength(&fours)) { return; }
  fours[id.x] = store4(floats[id.x]);
  twos[2 * id.x] = store2(floats[id.x].xy);
  twos[2 * id.x + 1] = store2(floats[id.x].zw);
}
"""
LOAD = """
@group(0) @binding(0) var<storage, read_write> floats: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> fours: array<Stored4>;
@group(0) @binding(2) var<storage, read_write> twos: array<Stored2>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= arrayLength(&fours)) { return; }
  let pairs = vec4<f32>(load2(twos[2 * id.x]), load2(twos[2 * id.x + 1]));
  floats[id.x] = 0.5 * (pairs + load4(fours[id.x]));
}
"""


def interesting_floats() -> np.ndarray:
    """Every finite f16 value, what lies midway between neighbours, and what lies just beside the midpoints.

    Left out: what lies beside midpoints of f16 subnormals, where SwiftShader drops the bits that tell it from a tie.
    """
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    midpoints = (halves[1:] + halves[:-1]) / 2
    beside = np.concatenate([np.nextafter(midpoints, np.float32(side)) for side in (-np.inf, np.inf)])
    beside = beside[np.abs(beside) >= np.finfo(np.float16).tiny]
    values = np.concatenate([halves, midpoints, beside]).astype(np.float32)
    return np.resize(values, -(-values.size // 4) * 4)


@pytest.mark.parametrize("storage", ["f16", "packed_f16", "f32"])
async def test_storage_rounds_to_the_nearest_half_ties_to_even(device: NativeDevice, storage: str) -> None:
    if storage == "f16" and not device.info.has_f16:
        pytest.skip("the adapter has no shader-f16")
    library = templates.SHIPPED.render("lib/storage.wgsl.j2", {"storage": storage})
    values = interesting_floats()
    expected = values if storage == "f32" else values.astype(np.float16)
    floats, fours, twos = device.buffer(values.nbytes), device.buffer(expected.nbytes), device.buffer(expected.nbytes)
    device.write(floats, 0, values)
    grid = (-(-values.size // 256), 1, 1)
    for code in (library + STORE, library + LOAD):
        device.submit(device.record([Dispatch(await device.pipeline(code), (floats, fours, twos), grid)]))
    for stored in (fours, twos):
        got = np.frombuffer(await device.read(stored, 0, expected.nbytes), expected.dtype)
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.frombuffer(await device.read(floats, 0, values.nbytes), np.float32), expected)
    for buffer in (floats, fours, twos):
        buffer.destroy()
