"""What PagedAttention's reference must do by the contract's words, where no other implementation can be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pageloom.attention.cases.paged_case import members
from pageloom.attention.paged.reference import paged_attention
from pageloom.attention.paged.spec import PagedAttentionSpec

BLOCK, HEAD = 16, 16


def call(
    new: list[int], past: list[int], *, seed: int = 0, heads: tuple[int, int] = (2, 1), head: int = HEAD, **more: Any
) -> dict[str, Any]:
    """float32 inputs with a reversed block table and all of the pool in use; `more` replaces or adds inputs."""
    rng = np.random.default_rng(seed)
    tokens, needs = sum(new), [-(-(n + p) // BLOCK) for n, p in zip(new, past, strict=True)]
    ids = list(range(sum(needs)))[::-1]
    table = np.full((len(new), max(*needs, 1)), -1, np.int32)
    for row, need in enumerate(needs):
        table[row, :need] = [ids.pop() for _ in range(need)]

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "query": normal(tokens, heads[0] * head),
        "key": normal(tokens, heads[1] * head),
        "value": normal(tokens, heads[1] * head),
        "key_cache": normal(max(sum(needs), 1), BLOCK, heads[1], head),
        "value_cache": normal(max(sum(needs), 1), BLOCK, heads[1], head),
        "cumulative_sequence_length": np.cumsum([0, *new]).astype(np.int32),
        "past_seqlens": np.array(past, np.int32),
        "block_table": table,
    } | more


SPEC = PagedAttentionSpec(num_heads=2, kv_num_heads=1)


def seen_positions(spec: PagedAttentionSpec, new: int, past: int) -> np.ndarray:
    """bool [new, total]: which positions reach the output, found with values that are one-hot in the position."""
    total = new + past
    head = -(-total // 8) * 8
    inputs = call([new], [past], heads=(1, 1), head=head)
    one_hot = np.eye(total, head, dtype=np.float32)
    positions = np.arange(past)
    inputs["value_cache"][inputs["block_table"][0, positions // BLOCK], positions % BLOCK, 0] = one_hot[:past]
    inputs["value"] = one_hot[past:]
    return paged_attention(spec, inputs).output[:, 0, :total] > 0


@pytest.mark.parametrize("window", [1, 2, 4, 16, 17, 40])
@pytest.mark.parametrize(("new", "past"), [(1, 30), (5, 0), (20, 13)])
def test_a_window_shows_exactly_its_keys_own_included(window: int, new: int, past: int) -> None:
    seen = seen_positions(PagedAttentionSpec(num_heads=1, kv_num_heads=1, local_window_size=window), new, past)
    for row in range(new):
        last = past + row
        assert np.flatnonzero(seen[row]).tolist() == list(range(max(0, last - window + 1), last + 1))


def test_without_causal_every_new_token_sees_the_sequence_and_a_window_bounds_it_on_the_left() -> None:
    both = PagedAttentionSpec(num_heads=1, kv_num_heads=1, is_causal=False)
    assert seen_positions(both, 6, 9).all()
    windowed = seen_positions(replace(both, local_window_size=4), 6, 9)
    assert [np.flatnonzero(row).min() for row in windowed] == [6, 7, 8, 9, 10, 11]
    assert windowed[:, 11:].all()


def test_a_sink_is_one_more_key_with_value_zero() -> None:
    inputs = call([5], [11])
    plain = paged_attention(SPEC, inputs)
    sink = np.array([0.7, -2.0], np.float32)
    sunk = paged_attention(SPEC, inputs | {"head_sink": sink})
    share = 1 / (1 + np.exp(sink.astype(float) - plain.log_sum_exp))
    np.testing.assert_allclose(sunk.output, plain.output * share[..., None], rtol=1e-12)
    np.testing.assert_allclose(sunk.log_sum_exp, np.logaddexp(plain.log_sum_exp, sink), rtol=1e-12)


def test_smooth_softmax_is_a_sink_of_zero() -> None:
    inputs = call([5], [11])
    smooth = paged_attention(replace(SPEC, use_smooth_softmax=True), inputs)
    sunk = paged_attention(SPEC, inputs | {"head_sink": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(smooth.output, sunk.output)


def test_softcap_bounds_the_logits() -> None:
    inputs = call([1], [20])
    inputs["query"] *= 100
    capped = paged_attention(replace(SPEC, softcap=0.5), inputs)
    assert capped.log_sum_exp.max() <= 0.5 + np.log(21)
    assert paged_attention(SPEC, inputs).log_sum_exp.max() > 20


def test_chunks_give_what_the_whole_prompt_gives() -> None:
    whole = call([37], [0])
    rotary = {
        "cos_cache": np.cos(np.arange(320).reshape(40, 8) / 9),
        "sin_cache": np.sin(np.arange(320).reshape(40, 8) / 9),
    }
    whole |= {name: array.astype(np.float32) for name, array in rotary.items()}
    spec = replace(SPEC, do_rotary=True, local_window_size=9)
    want = paged_attention(spec, whole)
    caches = {"key_cache": whole["key_cache"], "value_cache": whole["value_cache"]}
    outputs = []
    for start, stop in ((0, 1), (1, 16), (16, 33), (33, 37)):
        chunk = {name: whole[name][start:stop] for name in ("query", "key", "value")}
        lengths = {
            "cumulative_sequence_length": np.array([0, stop - start], np.int32),
            "past_seqlens": np.array([start], np.int32),
        }
        result = paged_attention(spec, whole | chunk | lengths | caches)
        caches = {"key_cache": result.key_cache, "value_cache": result.value_cache}
        outputs.append(result.output)
    np.testing.assert_allclose(np.concatenate(outputs), want.output, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(caches["key_cache"], want.key_cache)


def test_a_batch_is_its_members_run_alone() -> None:
    inputs = call([3, 0, 1, 18], [20, 5, 0, 7])
    together = paged_attention(SPEC, inputs)
    alone = list(members(inputs))
    assert [tokens.stop - tokens.start for tokens, _ in alone] == [3, 0, 1, 18]
    for tokens, member in alone:
        np.testing.assert_allclose(paged_attention(SPEC, member).output, together.output[tokens], rtol=1e-12)


def test_packed_is_separate() -> None:
    separate = call([4, 1], [3, 18])
    packed = {name: array for name, array in separate.items() if name not in ("key", "value")}
    packed["query"] = np.concatenate([separate[name] for name in ("query", "key", "value")], axis=1)
    want, got = paged_attention(SPEC, separate), paged_attention(SPEC, packed)
    np.testing.assert_array_equal(got.output, want.output)
    np.testing.assert_array_equal(got.value_cache, want.value_cache)


def test_slot_mapping_decides_what_is_stored_and_nothing_else_changes() -> None:
    inputs = call([6], [14])
    positions = np.arange(14, 20)
    slots = inputs["block_table"][0, positions // BLOCK] * BLOCK + positions % BLOCK
    slots[[0, 3]] = -1, 10**9
    result = paged_attention(SPEC, inputs | {"slot_mapping": slots.astype(np.int32)})
    changed = np.argwhere((result.key_cache != inputs["key_cache"]).any(axis=(2, 3)))
    assert sorted((changed @ [BLOCK, 1]).tolist()) == sorted(slots[[1, 2, 4, 5]].tolist())
    assert result.written.sum() == 4


def test_an_invalid_past_stores_nothing_and_gives_zeros() -> None:
    inputs = call([2, 2, 2], [3, 5, 30])
    inputs["past_seqlens"][[0, 2]] = -1, 31
    result = paged_attention(SPEC, inputs)
    assert not result.output[[0, 1, 4, 5]].any()
    assert result.output[2:4].any(axis=-1).all()
    assert result.written.sum() == 2


def test_tokens_past_the_prefix_sum_belong_to_no_sequence() -> None:
    inputs = call([2, 3], [3, 5])
    inputs["cumulative_sequence_length"] = np.array([0, 2, 3], np.int32)
    result = paged_attention(SPEC, inputs)
    assert not result.output[3:].any()
    assert result.written.sum() == 3


def test_an_unmapped_page_is_masked() -> None:
    inputs = call([1], [40])
    inputs["block_table"][0, 1] = 2**31 - 1
    assert paged_attention(SPEC, inputs).num_keys.tolist() == [[16 + 9] * 2]


def test_a_row_that_sees_no_key_is_zero() -> None:
    inputs = call([1], [40])
    inputs["block_table"][:] = -1
    result = paged_attention(SPEC, inputs)
    assert not result.output.any()
    assert np.isneginf(result.log_sum_exp).all()


def test_new_tokens_are_attended_as_they_are_stored() -> None:
    spec = replace(SPEC, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")
    inputs = call(
        [1], [0], key_cache=np.zeros((1, 16, 1, HEAD), np.int8), value_cache=np.zeros((1, 16, 1, HEAD), np.int8)
    )
    inputs |= {"k_scale": np.array([0.5], np.float32), "v_scale": np.array([0.25], np.float32)}
    result = paged_attention(spec, inputs)
    np.testing.assert_array_equal(result.output[0, 0], np.rint(inputs["value"][0].astype(float) / 0.25) * 0.25)


def test_latent_values_are_the_head_of_the_key_row() -> None:
    spec = PagedAttentionSpec(num_heads=2, kv_num_heads=1, kv_cache_layout="LATENT", v_head_size=8, scale=0.3)
    inputs = call([3], [20])
    latent = {name: array for name, array in inputs.items() if name not in ("value", "value_cache")}
    result = paged_attention(spec, latent)
    wide = dict(inputs, value=inputs["key"], value_cache=inputs["key_cache"])
    separate = paged_attention(PagedAttentionSpec(num_heads=2, kv_num_heads=1, scale=0.3), wide)
    np.testing.assert_allclose(result.output, separate.output[..., :8], rtol=1e-12)
    assert result.value_cache is None


def test_absorbed_latent_attention_is_attention_over_the_expanded_keys_and_values() -> None:
    rng = np.random.default_rng(4)
    heads, compressed, nope, pe, wide, past, new = 4, 64, 32, 32, 24, 9, 6
    up_key, up_value = rng.standard_normal((heads, compressed, nope)), rng.standard_normal((heads, compressed, wide))
    rows = rng.standard_normal((past + new, compressed + pe)).astype(np.float32)
    query = rng.standard_normal((new, heads, nope + pe))
    absorbed = np.concatenate([np.einsum("thn,hcn->thc", query[..., :nope], up_key), query[..., nope:]], axis=-1)
    absorbed = absorbed.astype(np.float32)
    spec = PagedAttentionSpec(
        num_heads=heads, kv_num_heads=1, kv_cache_layout="LATENT", v_head_size=compressed, scale=(nope + pe) ** -0.5
    )
    inputs = call([new], [past], heads=(heads, 1), head=compressed + pe)
    inputs = {name: array for name, array in inputs.items() if name not in ("value", "value_cache")}
    inputs["key_cache"][inputs["block_table"][0, 0], :past, 0] = rows[:past]
    inputs |= {"key": rows[past:], "query": absorbed.reshape(new, -1)}
    latent = np.einsum("thc,hcv->thv", paged_attention(spec, inputs).output, up_value)
    for head in range(heads):
        keys = np.concatenate([rows[:, :compressed] @ up_key[head], rows[:, compressed:]], axis=1)
        logits = query[:, head] @ keys.T * (nope + pe) ** -0.5
        logits[np.arange(past + new) > past + np.arange(new)[:, None]] = -np.inf
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        want = weights / weights.sum(axis=1, keepdims=True) @ (rows[:, :compressed] @ up_value[head])
        np.testing.assert_allclose(latent[:, head], want, rtol=1e-4, atol=1e-4)


def test_a_poisoned_key_within_reach_is_reported() -> None:
    inputs = call([1], [20])
    inputs["value_cache"][inputs["block_table"][0, 1], 3] = np.nan
    with pytest.raises(FloatingPointError, match="poisoned"):
        paged_attention(SPEC, inputs)


def test_the_inputs_are_left_as_they_were() -> None:
    inputs = call([3], [20])
    before = {name: array.copy() for name, array in inputs.items()}
    paged_attention(SPEC, inputs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, before[name])
