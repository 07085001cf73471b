"""New rows in the compiled kernels: codes bit for bit, norms and rotary against float64, each row in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.kernel_oracle import Array, decode, encode, pack_int4, rms_norm, rotate

pageloom_cpu = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not built; see py/pageloom-cpu")

LEVELS = pageloom_cpu.levels()


def ties_and_extremes(rows: int, channels: int, unit: float) -> Array:
    """float32 values at, beside and between halves of `unit`, out of range, zero, infinite and NaN."""
    rng = np.random.default_rng(1)
    values = (rng.integers(-300, 300, (rows, 2, channels)) * 0.5 * unit).astype(np.float32)
    values = np.where(rng.random(values.shape) < 0.3, np.nextafter(values, np.float32(np.inf)), values)
    values[0, 0, :6] = [np.nan, np.inf, -np.inf, -0.0, 3e38, -3e38]
    return values.astype(np.float32)


@pytest.mark.parametrize("rule", ["reciprocal", "divide"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [64, 19])
def test_codes_are_the_contracts_bit_for_bit(level: str, bits: int, rule: Any, channels: int) -> None:
    values = ties_and_extremes(40, channels, 0.1)
    per_channel = np.random.default_rng(2).uniform(-0.2, 0.2, (2, channels)).astype(np.float32)
    per_channel[0, 3] = 0.0
    for scale in (np.array([0.1], np.float32), per_channel):
        width = channels if bits == 8 else (channels + 1) // 2
        codes = np.zeros((40, 2, width), np.int8 if bits == 8 else np.uint8)
        pageloom_cpu.quantize(values, scale, codes, rule=rule, level=level)
        np.testing.assert_array_equal(codes, encode(values, scale.reshape(-1, scale.shape[-1]), bits, rule))


@pytest.mark.parametrize("level", LEVELS)
def test_known_codes(level: str) -> None:
    values = np.array([[[-0.85, 0.25, 0.05, 0.15, 0.35, 0.7, 0.75, -0.9]]], np.float32)
    codes = np.zeros((1, 1, 8), np.int8)
    pageloom_cpu.quantize(values, np.array([0.1], np.float32), codes, level=level)
    assert codes.tolist() == [[[-8, 2, 0, 2, 4, 7, 8, -9]]]
    packed = np.zeros((1, 1, 4), np.uint8)
    pageloom_cpu.quantize(values, np.array([0.1], np.float32), packed, level=level)
    assert packed.tobytes() == bytes.fromhex("a0a8fc0f")
    assert pack_int4(np.array([1, -8, 7, 2], np.int8)).tobytes() == bytes.fromhex("09af")


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_norm_and_rotary_of_a_packed_query(level: str, interleaved: bool, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    heads, kv_heads, width, rows = 4, 2, 40, 5
    packed = rng.normal(0, 1, (2, rows, heads + 2 * kv_heads, width)).astype(dtype)
    query, key, value = np.split(packed, [heads, heads + kv_heads], axis=2)
    cos, sin = rng.normal(0, 1, (2, 30, 8)).astype(dtype)
    q_weight, k_weight = rng.normal(1, 0.1, (2, width)).astype(dtype)
    position_ids = rng.integers(0, 30, (2, rows)).astype(np.int64)
    key_cache, value_cache = np.full((2, 2, kv_heads, 12, width), np.nan, np.float32)
    output = np.zeros((2, rows, heads, width), np.float32)
    pageloom_cpu.Append(
        pageloom_cpu.Sequences(2, rows, total_lengths=np.array([5, 9], np.int32)),
        query=query, query_output=output, key=key, value=value, key_cache=key_cache, value_cache=value_cache,
        cos=cos, sin=sin, position_ids=position_ids, interleaved=interleaved, rotary_offset=16,
        q_norm_weight=q_weight, k_norm_weight=k_weight, q_norm_epsilon=1e-3, level=level,
    )()  # fmt: skip
    for b, first in ((0, 0), (1, 4)):
        for row in range(rows):
            turn = {"interleaved": interleaved, "offset": 16}
            position = int(position_ids[b, row])
            expected = rotate(rms_norm(query[b, row], q_weight, 1e-3), position, cos, sin, **turn)
            np.testing.assert_allclose(output[b, row], expected, rtol=1e-5, atol=2e-6)
            expected = rotate(rms_norm(key[b, row], k_weight, 1e-6), position, cos, sin, **turn)
            np.testing.assert_allclose(key_cache[b, :, first + row], expected, rtol=1e-5, atol=2e-6)
            np.testing.assert_array_equal(value_cache[b, :, first + row], value[b, row].astype(np.float32))
        untouched = [t for t in range(12) if not first <= t < first + rows]
        assert np.isnan(key_cache[b][:, untouched]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [8, 4])
def test_pages_and_slots_take_their_own_rows_alone(level: str, bits: int) -> None:
    rng = np.random.default_rng(4)
    offsets, past = np.array([0, 3, 3, 20], np.int32), np.array([14, 2, 0], np.int32)
    table = np.array([[4, 1], [0, 7], [2, -1]], np.int32)
    key, value = rng.normal(0, 1, (2, 20, 2, 24)).astype(np.float32)
    scale = np.array([0.02 if bits == 8 else 0.3], np.float32)
    stored = encode(key, scale, bits, "divide")
    sequences = pageloom_cpu.Sequences(3, 20, query_offsets=offsets, past_lengths=past)
    slots = np.full(20, -1, np.int32)
    slots[:3] = [4 * 16 + 14, 4 * 16 + 15, 16]
    slots[3:19] = 2 * 16 + np.arange(16)
    for arguments in ({"block_table": table}, {"block_table": table, "slot_mapping": slots}, {"slot_mapping": slots}):
        caches = np.full((2, 6, 16, 2, stored.shape[-1]), 99, stored.dtype)
        pageloom_cpu.Append(
            sequences, key=key, value=value, key_cache=caches[0], value_cache=caches[1], k_scale=scale, v_scale=scale,
            rule="divide", level=level, **arguments,
        )()  # fmt: skip
        expected = np.full_like(caches[0], 99).reshape(96, 2, -1)
        expected[slots[slots >= 0]] = stored[slots >= 0]
        np.testing.assert_array_equal(caches[0].reshape(96, 2, -1), expected)
        rows = caches[1].reshape(96, 2, -1)[slots[:19]]
        np.testing.assert_allclose(
            decode(rows, scale, 24), np.clip(value[:19], *decode_range(bits, scale)), atol=scale[0]
        )


def decode_range(bits: int, scale: Array) -> tuple[float, float]:
    low, high = (-128, 127) if bits == 8 else (-8, 7)
    return low * float(scale[0]), high * float(scale[0])


def test_tensor_scatter_writes_rows_where_it_is_told() -> None:
    rng = np.random.default_rng(5)
    for dtype in (np.float32, np.float16, np.int8):
        cache = rng.integers(-100, 100, (2, 3, 7, 5)).astype(dtype)
        update = rng.integers(-100, 100, (2, 3, 4, 5)).astype(dtype)
        starts = np.array([3, 22], np.int64)
        expected = cache.copy()
        for b, start in enumerate(starts):
            for i in range(4):
                expected[b, :, (start + i) % 7] = update[b, :, i]
        written = cache.copy()
        pageloom_cpu.tensor_scatter(written, update, starts, circular=True)
        np.testing.assert_array_equal(written, expected)
        with pytest.raises(IndexError, match="write_indices of sequence 1 is 22"):
            pageloom_cpu.tensor_scatter(cache, update, starts)


def test_sequences_resolve_to_rows_positions_and_totals() -> None:
    offsets, past = np.array([0, 3, 3, 9], np.int32), np.array([5, 1, -2], np.int32)
    flat = pageloom_cpu.Sequences(3, 8, query_offsets=offsets, past_lengths=past)
    assert flat.resolve() == [(0, 3, 5, 8), (3, 0, 1, 1), (0, 0, -2, 0)]
    padded = pageloom_cpu.Sequences(2, 4, total_lengths=np.array([1, 7]), total_offset=1, clamp_first=True)
    assert padded.resolve() == [(0, 4, 0, 2), (4, 4, 4, 8)]
    limited = pageloom_cpu.Sequences(1, 2, past_lengths=np.array([7]), position_limit=8)
    assert limited.resolve()[0][1] == 0
    with pytest.raises(ValueError, match="exactly one of"):
        pageloom_cpu.Sequences(1, 1)
