"""Decodes that meet the codes of quantised caches by exact products of bytes, held against float64."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from codes_case import BLOCK, LENGTHS, assert_within, attended, codes_of
from operator_kit import CASES, assert_case_passes

from pageloom.backends.webgpu.device import Device, DeviceInfo
from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.programs.attention_decode import OF_CODES, decode_tile, why_not_integer_dots
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.elements import ElementKind


def dots(info: DeviceInfo, form: AttentionForm) -> tuple[Any, Any]:
    own = decode_tile(form, info).own
    return own["key_dots"], own["value_dots"]


@pytest.mark.parametrize(("key_kind", "value_kind"), [("int8", "int8"), ("int4", "int4")])
@pytest.mark.parametrize("query_scale", [1.0, 30.0], ids=["even", "peaked"])
async def test_codes_give_what_their_numbers_give(
    device: Device, key_kind: ElementKind, value_kind: ElementKind, query_scale: float
) -> None:
    case = codes_of(key_kind, value_kind, keys_per_step=OF_CODES.keys_per_step, query_scale=query_scale)
    assert dots(device.info, case.form) == (True, True)
    assert_within(case, await attended(device, case))


@pytest.mark.parametrize("heads", [(2, 1), (1, 1)])
async def test_any_group_of_heads(device: Device, heads: tuple[int, int]) -> None:
    case = codes_of("int8", "int4", keys_per_step=OF_CODES.keys_per_step, heads=heads)
    assert_within(case, await attended(device, case))


async def test_many_small_weights_beside_a_large_one_are_not_lost(device: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=OF_CODES.keys_per_step)
    key = case.lengths[-1] - 1
    case.keys[case.table[-1, key // BLOCK], key % BLOCK] = 127
    case.keys[case.table[-1][np.arange(key) // BLOCK], np.arange(key) % BLOCK] = 0
    # The last key weighs 20,000 times as much as each of the 1,029 others: less than a unit of 16 bits.
    case.query[-1] = np.log(20_000) / 127 / case.form.head_size
    case.values[case.table[-1][np.arange(key) // BLOCK], np.arange(key) % BLOCK] = 100
    case.values[case.table[-1, key // BLOCK], key % BLOCK] = 0
    expected, _ = case.expected()
    actual = (await attended(device, case))[-1]
    np.testing.assert_allclose(actual, expected[-1], rtol=3e-3)
    assert (expected[-1] > 4).all()


async def test_a_query_of_zeros_weighs_all_keys_alike(device: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=OF_CODES.keys_per_step)
    case.query[:] = 0
    assert_within(case, await attended(device, case))


async def test_a_token_gets_the_same_bits_alone_and_in_a_batch(device: Device) -> None:
    case = codes_of("int8", "int8", keys_per_step=OF_CODES.keys_per_step)
    together = await attended(device, case)
    for sequence in (4, len(LENGTHS) - 1):
        for max_sequences in (1, 64):
            alone = await attended(device, case.alone(sequence), max_sequences=max_sequences)
            np.testing.assert_array_equal(alone, together[[sequence]])


async def test_without_the_feature_codes_become_numbers_first(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    plain = await limited_device(without_features=("packed_4x8_integer_dot_product",))
    case = codes_of("int8", "int8", keys_per_step=OF_CODES.keys_per_step)
    assert why_not_integer_dots(case.form, plain.info) == "the device lacks packed_4x8_integer_dot_product"
    assert dots(plain.info, case.form) == (False, False)
    assert_within(case, await attended(plain, case))


CASES_OF_DOTS = [
    pytest.param("paged/int8/per_tensor/decode", marks=pytest.mark.slow),
    "paged/int8/per_channel/sink",
    "paged/int4/per_channel/decode",
    "paged/int4/per_tensor/window_softcap",
    "paged/mixed/int8_per_channel_float_none",
]


@pytest.mark.parametrize("name", CASES_OF_DOTS)
async def test_a_case_of_the_matrix(device: Device, driver: str, name: str) -> None:
    if driver == "lavapipe":
        pytest.skip("lavapipe takes most of a minute to compile the programs of a call")
    await assert_case_passes(device, WebGpuOperators(device), CASES[name], "direct-gpu")
