"""The conformance matrix on the PagedAttention operator, each case on the tier that is asserted.

SwiftShader has no more here than WebGPU promises of any adapter; lavapipe has what it offers, native f16 above all, and
runs one case of each feature, since it compiles slowly. `pageloom check` runs them all on either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from operator_kit import CASES, FEATURES, QUICK, assert_case_passes

from pageloom.attention.cases.case import Case
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.tiers import Tier
from pageloom.conformance.baseline import BASELINE_LIMITS, BASELINE_WITHOUT
from tests.native.conftest import open_driver

GPU_CASES = [
    "paged/decode/edges_nan",
    "paged/chunk/edges",
    "paged/heads/14_2/decode",
    "paged/noncausal/ragged",
    "paged/device_values/invalid_past_prefill",
    "paged/device_values/tokens_of_no_sequence",
    "paged/int8/per_channel/ragged",
    "paged/int4/long",
    "paged/mixed/float_none_int8_per_channel",
    "paged/latent/576_512_decode",
    "paged/latent/int8_per_tensor",
    "paged/latent/ragged",
    "paged/float32/prefill_64",
    "paged/all_together/ragged",
]
"""The features that the programs of the gpu tier tell apart: a CPU adapter takes seconds to compile each of them, a
minute on lavapipe."""

GATHER_CASES = [
    "paged/prefill/edges",
    "paged/rotary/half/decode",
    "paged/qk_norm/5",
    "paged/mixed/float_none_int8_per_channel",
    "paged/latent/ragged",
    "paged/all_together/ragged",
]
"""The features whose programs of the gather-then-flash tier read or write halves."""

swiftshader = pytest.mark.parametrize("driver", ["swiftshader"], indirect=True)
lavapipe = pytest.mark.parametrize("driver", ["lavapipe"], indirect=True)
software_tiers = pytest.mark.parametrize("tier", ["direct-software", "gather-then-flash"])
each_case = pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def device(driver: str) -> Iterator[NativeDevice]:
    limits, without = (BASELINE_LIMITS, BASELINE_WITHOUT) if driver == "swiftshader" else (None, ())
    device = asyncio.run(open_driver(driver, limits, without))
    yield device
    device.close()


@pytest.fixture(scope="module")
def operators(device: NativeDevice) -> WebGpuOperators:
    return WebGpuOperators(device)


@swiftshader
@software_tiers
@each_case
async def test_every_case_passes_with_no_more_than_webgpu_promises(
    device: NativeDevice, operators: WebGpuOperators, case: Case, tier: Tier
) -> None:
    await assert_case_passes(device, operators, case, tier)


@swiftshader
@pytest.mark.parametrize("name", GPU_CASES)
async def test_the_gpu_tier_passes_with_no_more_than_webgpu_promises(
    device: NativeDevice, operators: WebGpuOperators, name: str
) -> None:
    await assert_case_passes(device, operators, CASES[name], "direct-gpu")


@pytest.mark.slow
@swiftshader
@each_case
async def test_every_case_passes_on_the_gpu_tier(device: NativeDevice, operators: WebGpuOperators, case: Case) -> None:
    await assert_case_passes(device, operators, case, "direct-gpu")


@lavapipe
@pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.name)
async def test_every_feature_passes_in_native_f16(device: NativeDevice, operators: WebGpuOperators, case: Case) -> None:
    assert device.info.has_f16
    await assert_case_passes(device, operators, case, "direct-software")


@lavapipe
@pytest.mark.parametrize("name", GATHER_CASES)
async def test_gathered_pages_pass_in_native_f16(device: NativeDevice, operators: WebGpuOperators, name: str) -> None:
    await assert_case_passes(device, operators, CASES[name], "gather-then-flash")


@lavapipe
async def test_the_gpu_tier_passes_in_native_f16(device: NativeDevice, operators: WebGpuOperators) -> None:
    await assert_case_passes(device, operators, CASES["paged/latent/decode"], "direct-gpu")


@pytest.mark.parametrize("name", ["paged/large_grid/decode", "paged/large_grid/prefill"])
async def test_more_workgroups_than_a_dimension_holds(
    device: NativeDevice, operators: WebGpuOperators, name: str
) -> None:
    await assert_case_passes(device, operators, CASES[name], "direct-software")
