"""`pageloom check` as a user runs it; and that wrong numbers, refusals and lost devices are told as such."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pageloom.attention.cases.compare import Expected
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.tensors import Tensor
from pageloom.attention.vectors import Vector
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators.tiers import TIERS
from pageloom.conformance import run
from pageloom.conformance.members import Member, members
from pageloom.conformance.run import CaseRunner
from pageloom.errors import DeviceLost, InvalidArgument
from tests.native.software_drivers import environment_with

NAMES = (
    "paged/sink/decode",
    "paged/int8/per_tensor/decode",
    "paged/device_values/invalid_past_decode",
    "paged/bfloat16/decode_64",
)
VECTORS = {case.name: case.vector() for case in all_cases(operator="paged_attention", quick=True) if case.name in NAMES}


def check(driver: str, path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [sys.executable, "-m", "pageloom", "check", "--json", str(path), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment_with(driver))
    return ran, json.loads(path.read_text()) if path.exists() else {}


def test_every_case_is_told_with_its_error_and_what_computed_it(driver: str, tmp_path: Path) -> None:
    ran, written = check(driver, tmp_path / "report.json", "--quick", "--case", "paged/sink/*")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 of 4 cases passed, 0 failed, 0 skipped" in ran.stdout
    assert written["counts"] == {"passed": 4, "failed": 0, "skipped": 0}
    assert written["adapter"]["adapter_class"] == "software"
    for case in written["cases"]:
        assert 0 < case["worst_error"] <= case["budget"]
        assert case["alone"] == "same bits"
        assert set(case["faster"]) == set(TIERS[: TIERS.index(case["tier"])])
        assert all(case["faster"].values())


def test_the_baseline_asks_for_no_feature_and_the_least_limits(tmp_path: Path) -> None:
    ran, written = check("lavapipe", tmp_path / "report.json", "--quick", "--case", "paged/sink/decode", "--baseline")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not written["adapter"]["f16"]
    assert not {"subgroups", "timestamp-query"} & set(written["adapter"]["features"])
    assert written["adapter"]["limits"]["maxComputeInvocationsPerWorkgroup"] == 256


def test_a_tier_that_there_is_not_is_a_wrong_argument(tmp_path: Path) -> None:
    ran, _ = check("swiftshader", tmp_path / "report.json", "--quick", "--case", "paged/sink/decode", "--tier", "warp")
    assert ran.returncode == 2
    assert "there is no tier 'warp'" in ran.stderr


@pytest.mark.parametrize("name", NAMES)
async def test_each_kind_of_case_passes_with_the_bits_of_its_members(device: NativeDevice, name: str) -> None:
    report = await CaseRunner(device).run(VECTORS[name])
    assert (report.outcome, report.detail) == ("passed", "")
    assert report.alone == ("" if "device_values" in name else "same bits")


async def test_a_case_is_skipped_only_where_the_tier_asked_for_cannot_run_it_and_says_why(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device({"maxComputeInvocationsPerWorkgroup": 16})
    vector = VECTORS["paged/sink/decode"]
    report = await CaseRunner(device, "direct-gpu").run(vector)
    assert (report.outcome, report.tier) == ("skipped", "")
    assert "cannot run this call: maxComputeInvocationsPerWorkgroup is 16, and " in report.detail
    report = await CaseRunner(device).run(vector)
    assert (report.outcome, report.tier) == ("passed", "direct-software")


async def test_a_number_that_is_off_fails_the_case_and_names_the_element(device: NativeDevice) -> None:
    vector = VECTORS["paged/sink/decode"]
    report = await CaseRunner(device).run(with_value(vector, "output", 7, 100.0))
    assert (report.outcome, report.alone) == ("failed", "")
    assert report.share > 1
    assert report.detail.startswith("output[0, 0, 7] is ")


async def test_a_member_whose_bits_are_not_the_batchs_fails_the_case(
    device: NativeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nudged(vector: Vector, most: int) -> Iterator[Member]:
        for member in members(vector, most):
            query = member.inputs["query"]
            data = bytearray(query.data)
            data[0] ^= 1
            yield replace(member, inputs={**member.inputs, "query": Tensor(query.info, memoryview(data))})

    monkeypatch.setattr(run, "members", nudged)
    report = await CaseRunner(device).run(VECTORS["paged/sink/decode"])
    assert (report.outcome, report.alone) == ("failed", "off")
    assert re.match(r"sequence \d+ by itself: .*output.* differ from the batch's bits", report.detail)


async def test_a_cache_that_is_off_by_a_bit_fails_the_case(device: NativeDevice) -> None:
    vector = VECTORS["paged/int8/per_tensor/decode"]
    report = await CaseRunner(device).run(with_byte_flipped(vector, "key_cache_out"))
    assert report.outcome == "failed"
    assert report.detail.startswith("key_cache_out[")


async def test_a_call_that_is_refused_fails_the_case_with_its_reason(device: NativeDevice) -> None:
    vector = VECTORS["paged/sink/decode"]
    inputs = {name: tensor for name, tensor in vector.inputs.items() if name != "value_cache"}
    report = await CaseRunner(device).run(replace(vector, inputs=inputs))
    assert report.outcome == "failed"
    assert "value_cache" in report.detail


async def test_a_lost_device_ends_the_run_and_names_the_case(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device()
    runner = CaseRunner(device)
    device.close()
    with pytest.raises(DeviceLost, match="paged/sink/decode: the WebGPU device is gone"):
        await runner.run(VECTORS["paged/sink/decode"])


async def test_a_runner_refuses_a_tier_that_there_is_not(device: NativeDevice) -> None:
    with pytest.raises(InvalidArgument, match="direct-software"):
        CaseRunner(device, "warp")


def with_value(vector: Vector, name: str, element: int, value: float) -> Vector:
    """The case with another number expected: element `element` of a float64 output."""
    want = vector.expected[name]
    data = bytearray(want.values.data)
    memoryview(data).cast("d")[element] = value
    return with_expected(vector, name, want, data)


def with_byte_flipped(vector: Vector, name: str) -> Vector:
    want = vector.expected[name]
    data = bytearray(want.values.data)
    data[0] ^= 1
    return with_expected(vector, name, want, data)


def with_expected(vector: Vector, name: str, want: Expected, data: bytearray) -> Vector:
    changed = replace(want, values=Tensor(want.values.info, memoryview(data)))
    return replace(vector, expected={**vector.expected, name: changed})
