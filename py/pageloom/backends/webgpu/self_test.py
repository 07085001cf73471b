"""A start-up check that the device computes what the CPU computes: some drivers give wrong numbers and no error."""

from __future__ import annotations

import array
import math

from pageloom.backends.webgpu.device import Device, Dispatch
from pageloom.backends.webgpu.program import ProgramKey, Programs
from pageloom.errors import DeviceError

SIZE = 32
TOLERANCE = 1e-4  # of probabilities; f32 rounding and WGSL's exp stay below a tenth of it


def inputs() -> tuple[list[float], list[float]]:
    """Two SIZE x SIZE matrices of multiples of 1/16 in [-1, 1): their products are exact in f32."""
    left = [((37 * i + 11) % 32 - 16) / 16 for i in range(SIZE * SIZE)]
    right = [((29 * i + 5) % 31 - 15) / 16 for i in range(SIZE * SIZE)]
    return left, right


def softmax_of_product(left: list[float], right: list[float]) -> list[float]:
    """The softmax of each row of left @ right, in double precision."""
    result: list[float] = []
    for start in range(0, SIZE * SIZE, SIZE):
        row = left[start : start + SIZE]
        logits = [sum(a * b for a, b in zip(row, right[column::SIZE], strict=True)) for column in range(SIZE)]
        highest = max(logits)
        exponentials = [math.exp(logit - highest) for logit in logits]
        total = sum(exponentials)
        result += [value / total for value in exponentials]
    return result


async def self_test(device: Device, programs: Programs) -> None:
    """Raise `DeviceError` where a matrix product and a softmax come out wrong on the device."""
    left, right = inputs()
    buffers = [device.buffer(4 * SIZE * SIZE, f"self-test {name}") for name in ("left", "right", "result")]
    try:
        for buffer, values in zip(buffers, (left, right), strict=False):
            device.write(buffer, 0, array.array("f", values))
        pipeline = await programs.pipeline(ProgramKey.of("lib/self_test.wgsl.j2", size=SIZE))
        device.submit(device.record([Dispatch(pipeline, tuple(buffers), (SIZE, 1, 1))], "self-test"))
        found = memoryview(await device.read(buffers[2], 0, buffers[2].size)).cast("f")
    finally:
        for buffer in buffers:
            buffer.destroy()
    expected = softmax_of_product(left, right)
    # Written so that a NaN counts as wrong.
    wrong = sum(not abs(a - b) <= TOLERANCE for a, b in zip(found, expected, strict=True))
    if wrong:
        raise DeviceError(
            f"{device.info.description} computes wrongly: {wrong} of {len(expected)} results of a self-test are off by "
            f"more than {TOLERANCE}; update the GPU driver or the browser, or choose another adapter"
        )
