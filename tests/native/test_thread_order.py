"""Programs that exchange within subgroups run where neighbours of a workgroup are neighbours there, and only there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from operator_kit import CASES, assert_case_passes, inputs_of

from pageloom.backends.webgpu.device import SUBGROUP_MATRICES, Device, Pipeline
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.thread_order import REFUSED, usable_info
from pageloom.errors import DeviceError

IN_ORDER = "fn main(@builtin(local_invocation_index) thread: u32) {"
EVEN_ONES_FIRST = """fn main(@builtin(local_invocation_index) place: u32) {
  let thread = place % 64u * 2u + place / 64u;"""


class Renumbered:
    """A device whose driver gives the threads of a workgroup other places in their subgroups."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    async def pipeline(self, code: str, label: str = "") -> Pipeline:
        assert IN_ORDER in code
        return await self._device.pipeline(code.replace(IN_ORDER, EVEN_ONES_FIRST), label)


async def test_a_device_that_numbers_in_order_keeps_its_subgroups(device: NativeDevice) -> None:
    assert await usable_info(device) is device.info
    assert device.info.has_subgroups


async def test_a_device_that_numbers_otherwise_does_without_and_says_so(
    limited_device: Callable[..., Awaitable[NativeDevice]], driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await limited_device()
    info = await usable_info(Renumbered(device))
    assert (info.has_subgroups, info.subgroup_min_size, info.subgroups_refused) == (False, 0, REFUSED)
    monkeypatch.setattr(device, "_info", info)
    operators, case = WebGpuOperators(device), CASES["paged/int8/per_channel/decode"]
    explained = operators.paged_attention(case.spec).explain(tier="direct-gpu", **inputs_of(device, case))
    assert explained.decodes_without == {"matrices of bytes": REFUSED, "subgroups": REFUSED}
    if driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile the programs of a call")
    await assert_case_passes(device, operators, case, "direct-gpu")


async def test_without_integer_dots_codes_are_made_numbers_and_explain_says_so(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    case = CASES["paged/int8/per_channel/decode"]

    async def decodes_without(*features: str) -> dict[str, str]:
        device = await limited_device(without_features=features)
        operator = WebGpuOperators(device).paged_attention(case.spec)
        return dict(operator.explain(tier="direct-gpu", **inputs_of(device, case)).decodes_without)

    matrices = {"matrices of bytes": f"the device lacks {SUBGROUP_MATRICES}"}  # as all software adapters do
    assert await decodes_without() == matrices
    assert await decodes_without("packed_4x8_integer_dot_product") == {
        **matrices,
        "integer dots": "the device lacks packed_4x8_integer_dot_product",
    }
    assert await decodes_without("subgroups") == {**matrices, "subgroups": "the device lacks subgroups"}


async def test_a_driver_that_fails_at_exchanges_does_without_and_says_so(
    limited_device: Callable[..., Awaitable[NativeDevice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await limited_device()

    async def failing(code: str, label: str = "") -> Pipeline:
        raise DeviceError("no such instruction")

    monkeypatch.setattr(device, "pipeline", failing)
    info = await usable_info(device)
    assert not info.has_subgroups
    assert info.subgroups_refused == "the driver fails at exchanges within subgroups: no such instruction"
