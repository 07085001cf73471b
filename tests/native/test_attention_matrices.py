"""Decodes over int8 caches by products of matrices of bytes, held against float64: on a GPU that has them, and with the
products written out on a software adapter. A driver that computes nothing checks the programs as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from codes_case import LENGTHS, assert_within, attended, codes_of
from conftest import open_driver
from operator_kit import CASES, assert_case_passes
from products_in_loops import DeviceWithLoops

from pageloom.backends.webgpu.device import SUBGROUP_MATRICES, Device
from pageloom.backends.webgpu.native import open_native_device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.programs.attention_decode import decode_tile
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_matrices import HEAD_SIZES, SUBGROUP, TEAMS, matrices_tile
from pageloom.backends.webgpu.templates import render
from pageloom.errors import NotSupported

KEYS_PER_STEP = SUBGROUP * TEAMS


@pytest.fixture(scope="module", params=["in loops", pytest.param("hardware", marks=pytest.mark.gpu)])
def multiplying(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device with matrices of bytes."""
    if request.param == "hardware":
        try:
            device = asyncio.run(open_native_device(prefer="gpu"))
        except NotSupported as error:
            pytest.skip(error.message)
        if SUBGROUP_MATRICES not in device.info.features:
            pytest.skip(f"the GPU lacks {SUBGROUP_MATRICES}")
        yield device
    else:
        device = asyncio.run(open_driver("swiftshader"))
        yield DeviceWithLoops(device)
    device.close()


def test_a_decode_over_int8_takes_the_matrices(multiplying: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP)
    assert decode_tile(case.form, multiplying.info) == matrices_tile(case.form)


@pytest.mark.parametrize(
    ("heads", "size", "query_scale"),
    [((4, 1), 64, 1.0), ((14, 2), 64, 30.0), pytest.param((3, 1), 128, 1.0, marks=pytest.mark.gpu)],
)
async def test_codes_give_what_their_numbers_give(
    multiplying: Device, heads: tuple[int, int], size: int, query_scale: float
) -> None:
    case = codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP, heads=heads, size=size, query_scale=query_scale)
    assert_within(case, await attended(multiplying, case))


async def test_a_query_of_zeros_weighs_all_keys_alike(multiplying: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP)
    case.query[:] = 0
    assert_within(case, await attended(multiplying, case))


async def test_a_token_gets_the_same_bits_alone_and_in_a_batch(multiplying: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP)
    together = await attended(multiplying, case)
    for sequence in (4, len(LENGTHS) - 1):
        for max_sequences in (1, 64):
            alone = await attended(multiplying, case.alone(sequence), max_sequences=max_sequences)
            np.testing.assert_array_equal(alone, together[[sequence]])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    ["paged/int8/per_tensor/decode", "paged/int8/per_tensor/window_softcap", "paged/int8/per_channel/sink"],
)
async def test_a_case_of_the_matrix(multiplying: Device, name: str) -> None:
    await assert_case_passes(multiplying, WebGpuOperators(multiplying), CASES[name], "direct-gpu")


def decode_key(form: AttentionForm, num_splits: int) -> ProgramKey:
    tile = matrices_tile(form)
    return ProgramKey.of(
        tile.template,
        **form.parameters("causal", "latent", "v_head_size", *tile.left_out),
        **tile.parameters,
        num_splits=num_splits,
        heads_per_group=tile.heads_per_group,
        workgroup_size=tile.workgroup_size,
    )


CHECK = """
import sys
from pageloom.backends.webgpu.native_drivers import allow_experimental_features
import wgpudawn

allow_experimental_features()
adapter = wgpudawn.gpu.request_adapter_sync()
device = adapter.request_device_sync(required_features=["subgroups", "chromium-experimental-subgroup-matrix"])
for code in sys.stdin.read().split("\\0"):
    device.push_error_scope("validation")
    device.create_shader_module(code=code)
    error = device.pop_error_scope_async().sync_wait()
    if error is not None:
        sys.exit(error.message)
"""


def test_the_programs_are_valid_wgsl() -> None:
    form = replace(codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP).form, factors="v_scale", scaled_by="v_scale")
    forms = [replace(form, head_size=size, v_head_size=size) for size in HEAD_SIZES]
    forms.append(replace(form, num_heads=7, window=40, softcap=30.0, sink="zero", log_sum_exp=True))
    programs = [render(decode_key(form, splits)) for form in forms for splits in (1, 8)]
    environment = {**os.environ, "WGPU_BACKEND_TYPE": "Null"}
    command = [sys.executable, "-c", CHECK]
    checked = subprocess.run(
        command, input="\0".join(programs), env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


OFFERED = """
from pageloom.backends.webgpu.native_drivers import allow_experimental_features
import wgpudawn

allow_experimental_features()
print("chromium-experimental-subgroup-matrix" in wgpudawn.gpu.request_adapter_sync().features)
"""


@pytest.mark.parametrize(("variable", "offered"), [("", "True"), ("0", "False")])
def test_experimental_features_can_be_forbidden(variable: str, offered: str) -> None:
    environment = {**os.environ, "WGPU_BACKEND_TYPE": "Null", "PAGELOOM_WEBGPU_EXPERIMENTAL": variable}
    told = subprocess.run([sys.executable, "-c", OFFERED], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split()[-1] == offered


@pytest.mark.parametrize("size", HEAD_SIZES)
def test_the_workgroup_memory_that_is_asked_for_is_what_the_program_declares(size: int) -> None:
    form = replace(codes_of("int8", "int8", keys_per_step=KEYS_PER_STEP).form, head_size=size, v_head_size=size)
    code = render(decode_key(form, 8))
    sizes = {"vec4<u32>": 16, "vec4<f32>": 16, "u32": 4, "i32": 4, "f32": 4}
    declared = [
        line.removesuffix(">;").split("array<")[1].rsplit(", ", 1)
        for line in code.splitlines()
        if line.startswith("var<workgroup>")
    ]
    assert sum(sizes[kind] * int(count) for kind, count in declared) == matrices_tile(form).workgroup_bytes
