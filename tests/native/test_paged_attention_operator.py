"""PagedAttention as an operator: the conformance matrix on every driver, and what only an operator promises."""

from __future__ import annotations

import pytest

from pageloom.attention.cases.case import Case, compare
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_tensors
from pageloom.attention.tensors import Tensor
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.tiers import Tier

CASES = list(all_cases(operator="paged_attention", quick=True))
DEVICE_VALUES = {"device_lengths", "device_slots"}
INTEGERS = ("cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping")


@pytest.fixture(scope="session")
def operators(device: Device) -> WebGpuOperators:
    return WebGpuOperators(device)


def placed(device: Device, tensor: Tensor) -> DeviceTensor:
    buffer = device.buffer(max(16, tensor.info.num_bytes))
    device.write(buffer, 0, tensor.data)
    return DeviceTensor(buffer, tensor.info.dtype, tensor.info.shape)


def inputs_of(device: Device, case: Case) -> dict[str, Tensor | DeviceTensor]:
    """The inputs of a case; integers that a host would refuse are placed on the device."""
    inputs: dict[str, Tensor | DeviceTensor] = dict(as_tensors(case.inputs()))
    if case.needs & DEVICE_VALUES:
        inputs |= {name: placed(device, inputs[name]) for name in INTEGERS if name in inputs}
    return inputs


async def assert_case_passes(device: Device, operators: WebGpuOperators, case: Case, tier: Tier) -> None:
    operator, inputs = operators.paged_attention(case.spec), inputs_of(device, case)
    assert operator.explain(**inputs, tier=tier).tier == tier
    verdict = compare(case, await operator.run(**inputs, tier=tier, log_sum_exp=True))
    assert verdict.passed, verdict.where


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("tier", ["direct-software", pytest.param("direct-gpu", marks=pytest.mark.slow)])
async def test_a_case_of_the_matrix(device: Device, operators: WebGpuOperators, case: Case, tier: Tier) -> None:
    await assert_case_passes(device, operators, case, tier)
