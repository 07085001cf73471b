"""Quantised K and V: known codes, known bytes, and what must hold for any of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.kv_quantization import (
    decode,
    encode,
    load,
    pack_int4,
    spread_scale,
    store,
    unpack_int4,
)
from pageloom.attention.tensors import FLOAT8E4M3FN
from pageloom.attention.tensors import decode as decode_bytes

ROWS = np.array(
    [[-0.85, 0.25, 0.05, 0.15, 0.35, 0.7, 0.75, -0.9], [0.45, -0.05, -0.15, -0.25, 99, -99, 0, 0.65]], np.float32
)
TENTH = np.full((1, 8), 0.1, np.float32)


def test_int8_codes_round_halves_to_even_and_clamp() -> None:
    codes = encode(ROWS[:, None], TENTH, "int8", "reciprocal")
    assert codes.dtype == np.int8
    assert codes[:, 0].tolist() == [[-8, 2, 0, 2, 4, 7, 8, -9], [4, 0, -2, -2, 127, -128, 0, 6]]


def test_int4_codes_are_packed_with_the_even_channel_low() -> None:
    packed = encode(ROWS[:, None], TENTH, "int4", "divide")
    assert [row.tobytes().hex(" ") for row in packed[:, 0]] == ["a0 a8 fc 0f", "8c 66 0f e8"]
    assert unpack_int4(packed, 8)[:, 0].tolist() == [[-8, 2, 0, 2, 4, 7, 7, -8], [4, 0, -2, -2, 7, -8, 0, 6]]


def test_the_spare_half_of_an_odd_head_holds_code_0() -> None:
    packed = pack_int4(np.array([1, -1, 7], np.int8))
    assert packed.tolist() == [0x79, 0x8F]
    assert unpack_int4(packed, 3).tolist() == [1, -1, 7]


def test_every_int4_code_survives_packing() -> None:
    codes = np.array([(low, high) for low in range(-8, 8) for high in range(-8, 8)], np.int8)
    assert (unpack_int4(pack_int4(codes), 2) == codes).all()


def test_float8_codes_mean_what_the_format_says() -> None:
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(np.array(FLOAT8E4M3FN), codes.astype(np.float64))
    assert FLOAT8E4M3FN[0x7E] == 448
    assert FLOAT8E4M3FN[0x01] == 2.0**-9
    assert FLOAT8E4M3FN[0x38] == 1


def test_float8_saturates_and_rounds_halves_to_even() -> None:
    values = np.array([[1000, -1000, 448, 460, 17, 19, 2**-10, 3 * 2**-10]], np.float32)
    codes = encode(values, np.ones((1, 8), np.float32), "float8e4m3fn", "divide")
    assert codes.astype(np.float64)[0].tolist() == [448, -448, 448, 448, 16, 20, 0, 2**-8]


def test_bfloat16_bytes_decode_as_the_upper_half_of_a_float() -> None:
    values = np.array([1.0, -3.140625, 1e30, 0.0]).astype(ml_dtypes.bfloat16)
    assert list(decode_bytes("bfloat16", memoryview(values.tobytes()))) == values.astype(np.float64).tolist()


@pytest.mark.parametrize("element", ["int8", "int4", "float8e4m3fn"])
def test_equal_scales_of_all_channels_are_one_scale(element: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 2, 6))
    one, many = (CacheStorage(element, kind) for kind in ("PER_TENSOR", "PER_CHANNEL"))
    single = spread_scale(np.array([0.03], np.float32), one, 2, 6)
    spread = spread_scale(np.full((2, 1, 6), 0.03, np.float32), many, 2, 6)
    assert store(values, one, single, "divide").tobytes() == store(values, many, spread, "divide").tobytes()


@pytest.mark.parametrize(("element", "largest"), [("int8", 127), ("int4", 7)])
def test_representable_values_survive_exactly(element: str, largest: int) -> None:
    storage = CacheStorage(element, "PER_TENSOR")
    codes = np.arange(-largest - 1, largest + 1).reshape(1, 1, -1)
    scale = np.full((1, codes.size), 0.125, np.float32)
    assert (load(store(codes * 0.125, storage, scale, "divide"), storage, scale, codes.size) == codes * 0.125).all()


def test_channels_have_their_own_scales() -> None:
    scale = spread_scale(np.array([[[1.0, 2.0]], [[4.0, 8.0]]], np.float32), CacheStorage("int8", "PER_CHANNEL"), 2, 2)
    codes = encode(np.full((1, 2, 2), 8.0), scale, "int8", "divide")
    assert codes.tolist() == [[[8, 4], [2, 1]]]
    assert (decode(codes, scale, "int8", 2) == 8).all()


def test_a_scale_of_0_quantises_as_1() -> None:
    codes = encode(np.array([[2.0, 300.0]]), np.zeros((1, 2), np.float32), "int8", "reciprocal")
    assert codes.tolist() == [[2, 127]]


def test_the_two_rules_part_where_the_reciprocal_is_rounded() -> None:
    scale = np.full((1, 1), 0.1, np.float32)
    x = np.float32(0.45) * np.ones((1, 1), np.float32)
    reciprocal = np.rint(np.float32(0.45) * (np.float32(1) / np.float32(0.1)))
    divided = np.rint(np.float32(0.45) / np.float32(0.1))
    assert encode(x, scale, "int8", "reciprocal")[0, 0] == reciprocal
    assert encode(x, scale, "int8", "divide")[0, 0] == divided
