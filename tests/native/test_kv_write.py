"""The fused split, norm, rotary and cache write against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from paged_case import PagedCase, assert_within, attended, attention_op, fetch, filled, paged_case, run, step_words

from pageloom.attention.numerics.dtypes import UNIT_ROUNDOFF
from pageloom.attention.numerics.embedding import rms_norm, rotate
from pageloom.attention.numerics.error_budget import stored_key_budget
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.programs.kv_write import plan_kv_write
from pageloom.backends.webgpu.programs.rope_table import rope_table
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.layer_ops import PagedAttention, Rope

CONTEXT = 8192
SLOTS_WORD = 9
LENGTHS = [(0, 5), (15, 1), (16, 1), (5, 0), (31, 17), (CONTEXT - 3, 3)]


def rope_of(dim: int, *, interleaved: bool, theta: float = 1e4, factor: float = 1.0) -> Rope:
    frequencies = tuple(theta ** (-2 * pair / dim) for pair in range(dim // 2))
    return Rope(dim, interleaved, frequencies, factor)


class Written:
    """Runs the program on random QKV over a poisoned cache, beside its float64 counterpart."""

    def __init__(self, op: PagedAttention, lengths: list[tuple[int, int]] = LENGTHS, *, outlier: float = 1.0) -> None:
        rng = np.random.default_rng(7)
        self.gains = rng.uniform(0.5, 2.0, (2, op.head_size)).astype(np.float32)
        self.op = op
        self.case: PagedCase = paged_case(op, lengths)
        num_tokens, heads = len(self.case.query), op.num_heads + 2 * op.kv_num_heads
        self.qkv = rng.standard_normal((num_tokens, heads, op.head_size)).astype(np.float32)
        self.qkv[..., op.head_size // 2] *= outlier
        self.words = step_words(self.case.step_batch, block_size=16, tile_tokens=16)
        self.positions, self.slots = (
            self.words[self.words[word] : self.words[word] + num_tokens] for word in (SLOTS_WORD - 1, SLOTS_WORD)
        )

    async def on(self, device: Device, lanes: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Query and both caches, as the device leaves them."""
        op, case = self.op, self.case
        blank = np.full(case.key_cache.shape, np.nan, np.float16)
        query, keys, values = filled(device, np.full_like(case.query, np.nan)), filled(device, blank), filled(
            device, blank
        )  # fmt: skip
        normalised = op.q_norm is not None
        planned = plan_kv_write(
            device.info,
            op,
            filled(device, self.qkv),
            query,
            keys,
            values,
            filled(device, self.words),
            filled(device, np.array(rope_table(op.rope, CONTEXT))) if op.rope else None,
            filled(device, self.gains[0]) if normalised else None,
            filled(device, self.gains[1]) if normalised else None,
            max_tokens=len(case.query) + 3,
            lanes=lanes,
        )
        await run(device, planned)
        results = [
            await fetch(device, buffer, like) for buffer, like in ((query, case.query), (keys, blank), (values, blank))
        ]
        for buffer in planned[0].buffers:
            buffer.destroy()
        return results[0], results[1], results[2]

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Q, K and V of the new tokens in float64 `[tokens, heads, head_size]`, not rounded."""
        op, qkv = self.op, self.qkv.astype(np.float64)
        query, key, value = np.split(qkv, [op.num_heads, op.num_heads + op.kv_num_heads], axis=1)
        if op.q_norm:
            query = rms_norm(query, self.gains[0], op.norm_epsilon)
            key = rms_norm(key, self.gains[1], op.norm_epsilon)
        if op.rope:
            angles = np.arange(CONTEXT)[:, None] * np.array(op.rope.inverse_frequencies)
            tables = op.rope.attention_factor * np.cos(angles), op.rope.attention_factor * np.sin(angles)
            query, key = (rotate(x, self.positions, *tables, interleaved=op.rope.interleaved) for x in (query, key))
        return query * op.scale, key, value

    def check(self, query: np.ndarray, key_cache: np.ndarray, value_cache: np.ndarray) -> None:
        head_size = self.op.head_size
        exact_query, exact_key, exact_value = self.expected()
        float32_error = (head_size + 16) * UNIT_ROUNDOFF["float32"]
        assert_within(query, exact_query, 2 * float32_error * np.abs(exact_query).max(axis=-1, keepdims=True))
        stored = self.slots >= 0
        keys, values = (
            cache.reshape(-1, *cache.shape[2:])[self.slots[stored]].astype(np.float64)
            for cache in (key_cache, value_cache)
        )
        assert_within(keys, exact_key[stored], stored_key_budget("float16", exact_key[stored], head_size)[..., None])
        assert_within(values, exact_value[stored], UNIT_ROUNDOFF["float16"] * np.abs(exact_value[stored]) + 2.0**-25)
        for cache in (key_cache, value_cache):
            untouched = np.delete(cache.reshape(-1, *cache.shape[2:]), self.slots[stored], axis=0)
            assert np.isnan(untouched).all(), "a slot outside the mapping was written"


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    "op",
    [
        attention_op(rope=rope_of(64, interleaved=True)),
        attention_op(4, 1, 256, rope=rope_of(256, interleaved=False, theta=1e6), normalised=True),
        attention_op(8, 2, 80, rope=rope_of(32, interleaved=False), normalised=True),
        attention_op(4, 4, 96, rope=rope_of(40, interleaved=True, factor=1.25)),
        attention_op(2, 1, 40, normalised=True),
        attention_op(2, 2, 128),
    ],
    ids=["smollm2", "gemma3", "partial-half-split", "partial-interleaved-scaled", "norm-only", "plain"],
)
async def test_queries_keys_and_values_are_those_of_float64(device: Device, op: PagedAttention, lanes: int) -> None:
    written = Written(op)
    written.check(*await written.on(device, lanes))


async def test_rotary_holds_its_precision_at_the_end_of_the_context(device: Device) -> None:
    written = Written(attention_op(2, 1, 64, rope=rope_of(64, interleaved=False)), [(CONTEXT - 1, 1)])
    assert written.positions.tolist() == [CONTEXT - 1]
    written.check(*await written.on(device))


@pytest.mark.parametrize("lanes", [1, 16])
async def test_an_outlier_whose_square_is_beyond_f16_is_normalised_in_f32(device: Device, lanes: int) -> None:
    written = Written(attention_op(2, 1, 64, normalised=True), outlier=2000.0)
    written.check(*await written.on(device, lanes))


async def test_a_slot_of_minus_one_or_past_the_pool_stores_nothing_and_its_query_is_still_made(device: Device) -> None:
    written = Written(attention_op(rope=rope_of(64, interleaved=True)))
    pool_slots = written.case.key_cache.shape[0] * 16
    written.slots[[0, 7, 11]] = [-1, pool_slots, 2**30]
    results = await written.on(device)
    written.slots[[7, 11]] = -1
    written.check(*results)


async def test_values_beyond_f16_saturate(device: Device) -> None:
    written = Written(attention_op(2, 1, 64))
    written.qkv[0] = 1e30
    written.qkv[1] = -7e4
    _, key_cache, value_cache = await written.on(device)
    for cache in (key_cache, value_cache):
        flat = cache.reshape(-1, *cache.shape[2:])
        assert (flat[written.slots[0]] == 65504).all()
        assert (flat[written.slots[1]] == -65504).all()


async def test_a_token_is_written_with_the_same_bits_alone_and_in_a_batch(device: Device) -> None:
    op = attention_op(4, 1, 256, rope=rope_of(256, interleaved=False), normalised=True)
    together = Written(op)
    query, key_cache, _ = await together.on(device)
    alone = Written(op, [(CONTEXT - 3, 3)])
    alone.qkv = together.qkv[-3:]
    query_alone, key_cache_alone, _ = await alone.on(device)
    np.testing.assert_array_equal(query_alone, query[-3:])
    flat, flat_alone = (cache.reshape(-1, 256) for cache in (key_cache, key_cache_alone))
    np.testing.assert_array_equal(flat_alone[alone.slots], flat[together.slots[-3:]])


async def test_new_tokens_are_attended_as_they_were_stored(device: Device) -> None:
    written = Written(attention_op(rope=rope_of(64, interleaved=True)), [(0, 21), (0, 1)])
    query, key_cache, value_cache = await written.on(device)
    case = replace(written.case, query=query, key_cache=key_cache, value_cache=value_cache)
    assert_within(await attended(device, case, "software"), *case.expected())


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (attention_op(2, 1, 36), "head size 36"),
        (attention_op(2, 1, 520), "head size 520"),
        (attention_op(2, 1, 64, rope=rope_of(12, interleaved=True)), "rotary over 12 channels"),
    ],
)
async def test_what_no_program_does_is_refused_before_any_compile(
    device: Device, op: PagedAttention, reason: str
) -> None:
    with pytest.raises(NotSupported, match=reason):
        await Written(op, [(0, 1)]).on(device)


async def test_a_missing_norm_is_refused_by_name(device: Device) -> None:
    op = attention_op(2, 1, 64, normalised=True)
    buffers = [device.buffer(4) for _ in range(5)]
    with pytest.raises(InvalidArgument, match="q_norm is missing"):
        plan_kv_write(device.info, op, *buffers, None, None, None, max_tokens=1)
