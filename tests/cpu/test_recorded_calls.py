"""Recorded calls: every tensor is read anew, nothing is made anew, and caches grow in place."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from kernels_kit import LEVELS, needs_kernels, operator_of

from pageloom.attention.cases.case import compare
from pageloom.attention.cases.compare import compare_outputs
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.group_query.reference import group_query_attention
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import as_tensors
from pageloom.attention.paged.reference import paged_attention
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.tiers import Tier

pytestmark = needs_kernels
CASES = {case.name: case for case in all_cases(quick=True)}
TIERS: tuple[Tier | None, ...] = (None, "flash-decoding", "flash", "naive", "reference")
STEPS, CAPACITY, BATCH, HEADS, KV_HEADS, HEAD_SIZE = 20, 24, 2, 4, 2, 32


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("tier", TIERS)
def test_every_step_of_a_decode_is_that_of_the_reference(tier: Tier | None) -> None:
    spec = GroupQueryAttentionSpec(
        num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=True, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR",
        kv_cache_bit_width=8,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    angles = np.arange(CAPACITY)[:, None] * 10.0 ** -np.arange(HEAD_SIZE // 2)
    inputs = {
        "query": normal(BATCH, 1, HEADS * HEAD_SIZE),
        "key": normal(BATCH, 1, KV_HEADS * HEAD_SIZE),
        "value": normal(BATCH, 1, KV_HEADS * HEAD_SIZE),
        "past_key": rng.integers(-128, 128, (BATCH, KV_HEADS, CAPACITY, HEAD_SIZE)).astype(np.int8),
        "past_value": rng.integers(-128, 128, (BATCH, KV_HEADS, CAPACITY, HEAD_SIZE)).astype(np.int8),
        "seqlens_k": np.array([3, 1], np.int32),
        "total_sequence_length": np.array(CAPACITY, np.int32),
        "cos_cache": np.cos(angles).astype(np.float32),
        "sin_cache": np.sin(angles).astype(np.float32),
        "k_scale": np.array([0.03], np.float32),
        "v_scale": np.array([0.02], np.float32),
    }
    presents = {"present_key": inputs["past_key"], "present_value": inputs["past_value"]}
    call = CpuOperators().group_query_attention(spec).record(tier=tier, **inputs, **presents)
    for _ in range(STEPS):
        for name in ("query", "key", "value"):
            inputs[name][...] = rng.standard_normal(inputs[name].shape)
        want = group_query_attention(spec, inputs)
        outputs = call()
        assert outputs["present_key"] is inputs["past_key"]
        assert np.abs(outputs["output"].reshape(want.output.shape) - want.output).max() < 1e-5
        resident = want.resident[:, None, :, None]
        differing = (outputs["present_key"] != want.present_key) & resident
        assert differing.sum() <= 2, "a code of rotated K may be off where it lies between two"
        assert np.array_equal(
            np.where(resident, outputs["present_value"], 0), np.where(resident, want.present_value, 0)
        )
        inputs["seqlens_k"] += 1


@pytest.mark.parametrize("tier", TIERS)
def test_lengths_tables_and_slots_are_read_anew(tier: Tier | None) -> None:
    spec = PagedAttentionSpec(num_heads=HEADS, kv_num_heads=KV_HEADS)
    rng = np.random.default_rng(1)
    tokens, blocks = 4, 12
    inputs = {
        "query": normal(tokens, HEADS * HEAD_SIZE),
        "key": normal(tokens, KV_HEADS * HEAD_SIZE),
        "value": normal(tokens, KV_HEADS * HEAD_SIZE),
        "key_cache": normal(blocks, 16, KV_HEADS, HEAD_SIZE),
        "value_cache": normal(blocks, 16, KV_HEADS, HEAD_SIZE),
        "cumulative_sequence_length": np.array([0, 4, 4, 4], np.int32),
        "past_seqlens": np.zeros(3, np.int32),
        "block_table": np.zeros((3, 4), np.int32),
        "slot_mapping": np.zeros(tokens, np.int32),
    }
    call = CpuOperators().paged_attention(spec).record(tier=tier, **inputs)
    for step in range(6):
        lengths = rng.multinomial(tokens, [1 / 3] * 3)
        inputs["cumulative_sequence_length"][1:] = np.cumsum(lengths)
        inputs["past_seqlens"][:] = rng.integers(5, 60, 3)
        inputs["block_table"][...] = rng.permutation(blocks).reshape(3, 4)
        inputs["slot_mapping"][:] = rng.permutation(blocks * 16)[:tokens] if step % 2 else -1
        inputs["query"][...] = rng.standard_normal(inputs["query"].shape)
        want = paged_attention(spec, inputs)
        outputs = call()
        assert np.abs(outputs["output"].reshape(want.output.shape) - want.output).max() < 1e-5
        assert np.array_equal(outputs["key_cache_out"], want.key_cache)


@pytest.mark.parametrize("level", LEVELS)
def test_a_recorded_call_allocates_nothing_in_python(level: str) -> None:
    case = CASES["paged/int8/per_tensor/decode"]
    call = operator_of(CpuOperators(level=level), case).record(**case.inputs())
    call()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        call()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000


def test_inputs_outlive_their_names() -> None:
    case = CASES["paged/sink/decode"]
    inputs = case.inputs()
    call = operator_of(CpuOperators(), case).record(**inputs)
    inputs.clear()
    garbage = [np.full(1 << 16, np.nan, np.float32) for _ in range(32)]
    assert compare(case, call()).passed
    assert len(garbage) == 32


def test_a_recorded_call_explains_itself_with_the_lengths_as_they_are() -> None:
    case = CASES["group_query/long/decode"]
    inputs = case.inputs()
    presents = {
        "present_key": np.zeros((1, 2, 5001, 32), np.float32),
        "present_value": np.zeros((1, 2, 5001, 32), np.float32),
    }
    call = operator_of(CpuOperators(threads=3), case).record(**inputs, **presents)
    assert call.explain().tier == "flash-decoding"
    verdict = compare_outputs(case.expected(), as_tensors(call()))
    assert verdict.passed, verdict
    inputs["seqlens_k"][0] = 1
    explained = call.explain()
    assert explained.tier == "flash"
    assert "nothing to split" in explained.reasons["flash-decoding"]
