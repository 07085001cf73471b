"""Whether a device can run a program, decided on adapters that this machine does not have."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, require, split_grid, why_not
from pageloom.errors import NotSupported

# WebGPU's default limits: what every core adapter has at least.
DEFAULTS = {
    "maxBufferSize": 2**28,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 2**27,
    "maxStorageBuffersPerShaderStage": 8,
}
PLAIN = DeviceInfo("acme", "plain", "Acme", "native", "gpu", frozenset(), DEFAULTS)
SMALL = dataclasses.replace(PLAIN, limits={**DEFAULTS, "maxComputeInvocationsPerWorkgroup": 64})
HALF = dataclasses.replace(PLAIN, features=frozenset({"shader-f16"}))

FULL = ProgramNeeds((256, 1, 1), 16384, (2**27,) * 8, (65535, 65535, 65535))


@pytest.mark.parametrize(
    ("info", "needs", "reason"),
    [
        (PLAIN, FULL, None),
        (None, ProgramNeeds(), "no WebGPU adapter"),
        (SMALL, FULL, "maxComputeInvocationsPerWorkgroup is 64, and 256 is needed"),
        (SMALL, ProgramNeeds((8, 8, 1)), None),
        (PLAIN, ProgramNeeds((16, 16, 2)), "maxComputeInvocationsPerWorkgroup is 256, and 512 is needed"),
        (PLAIN, ProgramNeeds((1, 1, 65)), "maxComputeWorkgroupSizeZ is 64, and 65 is needed"),
        (PLAIN, ProgramNeeds(workgroup_bytes=16385), "maxComputeWorkgroupStorageSize is 16384, and 16385 is needed"),
        (PLAIN, ProgramNeeds(binding_bytes=(4,) * 9), "maxStorageBuffersPerShaderStage is 8, and 9 is needed"),
        (PLAIN, ProgramNeeds(binding_bytes=(4, 2**27 + 4)), "maxStorageBufferBindingSize is 134217728"),
        (PLAIN, ProgramNeeds(grid=(1, 65536, 1)), "maxComputeWorkgroupsPerDimension is 65535, and 65536 is needed"),
        (PLAIN, ProgramNeeds(features=frozenset({"shader-f16", "subgroups"})), "lacks shader-f16, subgroups"),
        (HALF, ProgramNeeds(features=frozenset({"shader-f16"})), None),
    ],
)
def test_a_device_is_refused_with_the_limit_that_is_too_low(
    info: DeviceInfo | None, needs: ProgramNeeds, reason: str | None
) -> None:
    answer = why_not(needs, info)
    if reason is None:
        assert answer is None
        require(needs, info, "matmul")
    else:
        assert answer is not None
        assert reason in answer
        with pytest.raises(NotSupported, match="matmul cannot run on this device") as refusal:
            require(needs, info, "matmul")
        assert refusal.value.message.endswith(answer)


@pytest.mark.parametrize("per_dimension", [1, 2, 7, 65535])
@pytest.mark.parametrize("count", [0, 1, 2, 6, 7, 8, 48, 49, 50, 342, 343, 65535, 65536, 10**6, 2**32 + 1])
def test_a_split_grid_holds_every_group_and_wastes_less_than_one_a_row(count: int, per_dimension: int) -> None:
    if count > per_dimension**3:
        with pytest.raises(NotSupported):
            split_grid(count, per_dimension)
        return
    _, y, z = grid = split_grid(count, per_dimension)
    assert max(grid) <= per_dimension
    assert count <= math.prod(grid) < count + y * z or count == 0
