"""Calls of the PagedAttention operator from the cases of the conformance matrix."""

from __future__ import annotations

from pageloom.attention.cases.case import Case, compare
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_tensors
from pageloom.attention.tensors import Tensor
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.tiers import Tier

CASES = {case.name: case for case in all_cases(operator="paged_attention")}
QUICK = [case for case in CASES.values() if case.quick]
FEATURES = list({case.name.split("/")[1]: case for case in reversed(QUICK)}.values())[::-1]
"""The first quick case of each feature."""
DEVICE_VALUES = {"device_lengths", "device_slots"}
INTEGERS = ("cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping")


def placed(device: Device, tensor: Tensor) -> DeviceTensor:
    """A copy of `tensor` on the device."""
    buffer = device.buffer(max(16, tensor.info.num_bytes))
    device.write(buffer, 0, tensor.data)
    return DeviceTensor(buffer, tensor.info.dtype, tensor.info.shape)


async def fetched(device: Device, tensor: DeviceTensor) -> Tensor:
    """A copy of `tensor` in host memory."""
    size = tensor.info.num_bytes
    return Tensor(tensor.info, memoryview(await device.read(tensor.buffer, 0, -(-size // 4) * 4))[:size])


def inputs_of(device: Device, case: Case) -> dict[str, Tensor | DeviceTensor]:
    """The inputs of a case; integers that a host would refuse are placed on the device."""
    inputs: dict[str, Tensor | DeviceTensor] = dict(as_tensors(case.inputs()))
    if case.needs & DEVICE_VALUES:
        inputs |= {name: placed(device, inputs[name]) for name in INTEGERS if name in inputs}
    return inputs


async def assert_case_passes(device: Device, operators: WebGpuOperators, case: Case, tier: Tier) -> None:
    """Run a case on `tier`, and compare all its outputs. The fastest tier that a CPU adapter takes is not forced."""
    operator, inputs = operators.paged_attention(case.spec), inputs_of(device, case)
    forced = None if tier == "direct-software" else tier
    assert operator.explain(**inputs, tier=forced).tier == tier
    verdict = compare(case, await operator.run(**inputs, tier=forced, log_sum_exp=True))
    assert verdict.passed, verdict.where
