"""The start-up check passes on a sound device and refuses one that computes wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from pageloom.backends.webgpu import self_test, templates
from pageloom.backends.webgpu.device import Pipeline
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.errors import DeviceError


class Altered:
    """Programs with a fault put into their code: a miscompiling driver, made on purpose."""

    def __init__(self, device: NativeDevice, right: str, wrong: str) -> None:
        self.device, self.right, self.wrong = device, right, wrong

    async def pipeline(self, key: ProgramKey) -> Pipeline:
        code = templates.render(key)
        assert self.right in code
        return await self.device.pipeline(code.replace(self.right, self.wrong))


def test_the_expected_result_is_the_softmax_of_the_product() -> None:
    left, right = (np.array(matrix).reshape(self_test.SIZE, -1) for matrix in self_test.inputs())
    exponentials = np.exp(left @ right)
    expected = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(self_test.softmax_of_product(*self_test.inputs()), expected.ravel(), rtol=1e-9)


async def test_a_sound_device_passes(device: NativeDevice) -> None:
    await self_test.self_test(device, ProgramCache(device))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("exp(sum - highest) / total", "exp(sum - highest)"),
        ("i < SIZE", "i < SIZE - 1u"),
        ("var sum = 0.0", "var sum = bitcast<f32>(0x7fc00000u | column)"),
    ],
)
async def test_a_device_that_computes_wrongly_is_refused(device: NativeDevice, right: str, wrong: str) -> None:
    with pytest.raises(DeviceError, match="computes wrongly"):
        await self_test.self_test(device, Altered(device, right, wrong))
