"""Decodes that exchange scores within subgroups: cases of the matrix, and what sends a call to the other program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest
from operator_kit import CASES, assert_case_passes
from paged_case import assert_within, attended, attention_op, paged_case

from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.programs.attention_check import decoder_form
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket
from pageloom.backends.webgpu.programs.attention_decode import decode_tile, why_not_subgroups
from pageloom.model.layer_ops import PagedAttention

SUBGROUPS, WORKGROUP = "paged_attention/decode_subgroups.wgsl.j2", "paged_attention/decode.wgsl.j2"
LENGTHS = [0, 1, 7, 8, 15, 16, 63, 64, 65, 127, 128, 129, 255, 256, 400, 1023, 1024, 1279, 1280, 1535, 2050]


def program_of(device: Device, op: PagedAttention) -> str:
    return decode_tile(decoder_form(device.info, op, 16), device.info).template


@pytest.mark.parametrize(
    ("num_heads", "kv_num_heads", "poison"), [(8, 2, "nan"), (3, 1, "large"), (2, 2, "nan"), (7, 1, "large")]
)
async def test_every_edge_of_steps_and_splits(device: Device, num_heads: int, kv_num_heads: int, poison: str) -> None:
    op = attention_op(num_heads, kv_num_heads, 64)
    assert program_of(device, op) == SUBGROUPS
    case = paged_case(op, [(past, 1) for past in LENGTHS], poison=poison)
    assert_within(await attended(device, case, "gpu"), *case.expected())


@pytest.mark.parametrize("window", [17, 1000])
async def test_a_window_that_starts_anywhere(device: Device, window: int) -> None:
    case = paged_case(attention_op(4, 1, 64, window=window), [(past, 1) for past in (0, 16, 64, 255, 1030, 1290)])
    assert_within(await attended(device, case, "gpu"), *case.expected())


async def test_softcap_and_blocks_of_any_size(device: Device) -> None:
    for block_size in (64, 256):
        case = paged_case(attention_op(4, 1, 64, softcap=5.0), [(400, 1), (70, 1)], block_size=block_size)
        assert_within(await attended(device, case, "gpu"), *case.expected())


async def test_unmapped_blocks_are_masked_in_the_middle_of_a_split(device: Device) -> None:
    case = paged_case(attention_op(4, 1, 64), [(300, 1), (1500, 1), (40, 1)])
    case.block_table[0, [2, 3, 9]] = -1
    case.block_table[1, 16:32] = 2**20
    case.block_table[2] = -1
    actual = await attended(device, case, "gpu")
    case.block_table[case.block_table >= len(case.key_cache)] = -1
    assert_within(actual, *case.expected())
    assert (actual[2] == 0).all()


async def test_a_token_gets_the_same_bits_however_its_splits_are_shared(device: Device) -> None:
    case = paged_case(attention_op(4, 1, 64), [(1100, 1), (700, 1)])
    together = await attended(device, case, "gpu", bucket=AttentionBucket(2, 2, 1, max_kv_len=2048))
    for sequence in range(2):
        alone = case.alone(sequence)
        for sequences in (1, 64):  # the grid has a workgroup for each split, or one for several
            bucket = AttentionBucket(1, sequences, 1, max_kv_len=2048)
            np.testing.assert_array_equal(await attended(device, alone, "gpu", bucket=bucket), together[[sequence]])


async def test_heads_are_joined_one_after_another_in_little_workgroup_memory(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    limited = await limited_device({"maxComputeWorkgroupStorageSize": 16384})
    op = attention_op(8, 2, 64)
    assert decode_tile(decoder_form(limited.info, op, 16), limited.info).own["merged"] == 1
    case = paged_case(op, [(past, 1) for past in LENGTHS])
    assert_within(await attended(limited, case, "gpu"), *case.expected())


async def test_without_subgroups_the_other_program_serves(
    limited_device: Callable[..., Awaitable[NativeDevice]], driver: str
) -> None:
    plain = await limited_device(without_features=("subgroups",))
    assert plain.info.subgroup_min_size == 0
    op = attention_op(4, 1, 64)
    assert program_of(plain, op) == WORKGROUP
    assert why_not_subgroups(decoder_form(plain.info, op, 16), plain.info) == "the device lacks subgroups"
    if driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile the other program")
    case = paged_case(op, [(past, 1) for past in LENGTHS])
    assert_within(await attended(plain, case, "gpu"), *case.expected())


@pytest.mark.parametrize("head_size", [pytest.param(8, marks=pytest.mark.slow), 16])
async def test_rows_too_short_for_their_heads_go_to_the_other_program(
    device: Device, driver: str, head_size: int
) -> None:
    op = attention_op(4, 1, head_size)
    assert program_of(device, op) == WORKGROUP
    assert "for each of 4 query heads" in str(why_not_subgroups(decoder_form(device.info, op, 16), device.info))
    if driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile the other program")
    case = paged_case(op, [(past, 1) for past in (0, 15, 16, 130)])
    assert_within(await attended(device, case, "gpu"), *case.expected())


CASES_OF_SUBGROUPS = [
    "paged/decode/edges_nan",
    pytest.param("paged/int8/per_channel/ragged", marks=pytest.mark.slow),
    pytest.param("paged/int4/long", marks=pytest.mark.slow),
    "paged/mixed/float_none_int8_per_channel",
    "paged/float32/decode_64",
    "paged/all_together/ragged",
]


@pytest.mark.parametrize("name", CASES_OF_SUBGROUPS)
async def test_a_case_of_the_matrix(device: Device, driver: str, name: str) -> None:
    if driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile the programs of a call")
    await assert_case_passes(device, WebGpuOperators(device), CASES[name], "direct-gpu")


def test_rows_that_a_subgroup_does_not_hold_are_refused_with_the_numbers(device: Device) -> None:
    few = replace(device.info, subgroup_min_size=4)
    op = attention_op(4, 1, 128)
    reason = why_not_subgroups(decoder_form(few, op, 16), few)
    assert reason is not None
    assert "takes 16 loads" in reason
    assert "4 threads" in reason
