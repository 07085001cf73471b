"""Wrong calls of PagedAttention: each raises its typed error, naming the argument and saying what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from pageloom.attention.paged.check import QkvMode, check_shapes
from pageloom.attention.paged.host_values import check_lengths, check_metadata
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tensors import TensorInfo
from pageloom.errors import InvalidArgument, NotSupported, PageloomError

HEADS = {"num_heads": 4, "kv_num_heads": 2}
LATENT = {"num_heads": 4, "kv_num_heads": 1, "kv_cache_layout": "LATENT"}


def f16(*shape: int) -> TensorInfo:
    return TensorInfo("float16", shape)


def f32(*shape: int) -> TensorInfo:
    return TensorInfo("float32", shape)


def i32(*shape: int) -> TensorInfo:
    return TensorInfo("int32", shape)


def i8(*shape: int) -> TensorInfo:
    return TensorInfo("int8", shape)


GOOD = {
    "query": f16(6, 256), "key": f16(6, 128), "value": f16(6, 128),
    "key_cache": f16(9, 16, 2, 64), "value_cache": f16(9, 16, 2, 64),
    "cumulative_sequence_length": i32(3), "past_seqlens": i32(2), "block_table": i32(2, 4),
}  # fmt: skip
GOOD_LATENT = {
    "query": f16(6, 256), "key": f16(6, 64), "key_cache": f16(9, 16, 1, 64),
    "cumulative_sequence_length": i32(3), "past_seqlens": i32(2), "block_table": i32(2, 4),
}  # fmt: skip
INT8_CACHES = {"key_cache": i8(9, 16, 2, 64), "value_cache": i8(9, 16, 2, 64), "k_scale": f32(1), "v_scale": f32(1)}
INT8_SPEC = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
ROTARY = {"cos_cache": f16(64, 32), "sin_cache": f16(64, 32)}

# attributes, param, words of the message
BAD_ATTRIBUTES: list[tuple[dict[str, Any], str, str]] = [
    ({"num_heads": 0}, "num_heads", "num_heads is 0; an integer of at least 1"),
    ({"num_heads": 4.0}, "num_heads", "num_heads is 4.0"),
    ({"kv_num_heads": -1}, "kv_num_heads", "at least 1"),
    ({"kv_num_heads": 3}, "kv_num_heads", "num_heads 4 is no multiple of kv_num_heads 3"),
    ({"scale": float("nan")}, "scale", "scale is nan; a finite number"),
    ({"softcap": -1.0}, "softcap", "softcap is -1.0; a finite number of at least 0"),
    ({"softcap": float("inf")}, "softcap", "softcap is inf"),
    ({"softcap": 1e-300}, "softcap", "softcap is 1e-300; a finite number of at least 0, of float32's normal range"),
    ({"scale": -1e300}, "scale", "scale is -1e+300; a finite number, of float32's"),
    ({"scale": 10**5000}, "scale", "scale is a number of thousands of digits; a finite number"),
    ({"local_window_size": 0}, "local_window_size", "-1 turns the window off"),
    ({"local_window_size": -2}, "local_window_size", "at least -1"),
    ({"is_causal": 2}, "is_causal", "is_causal is 2; 0 or 1"),
    ({"do_rotary": "yes"}, "do_rotary", "0 or 1"),
    ({"rotary_offset": 4}, "rotary_offset", "a multiple of 8"),
    ({"rotary_offset": -8}, "rotary_offset", "at least 0"),
    ({"qk_norm_epsilon": 0.0}, "qk_norm_epsilon", "above 0"),
    ({"qk_norm_epsilon": -1e-6}, "qk_norm_epsilon", "above 0"),
    ({"qk_norm_epsilon": float("nan")}, "qk_norm_epsilon", "finite"),
    ({"qk_norm_epsilon": float("inf")}, "qk_norm_epsilon", "finite"),
    ({"k_quant_type": "PER_TOKEN"}, "k_quant_type", "allowed are 'NONE', 'PER_TENSOR', 'PER_CHANNEL'"),
    ({"v_quant_type": ""}, "v_quant_type", "allowed are 'NONE'"),
    ({"k_cache_dtype": "uint4"}, "k_cache_dtype", "k_cache_dtype is 'uint4'"),
    ({"kv_cache_layout": "PAGED"}, "kv_cache_layout", "allowed are 'SEPARATE', 'LATENT'"),
    ({"v_head_size": -8}, "v_head_size", "at least 0"),
    ({"kv_cache_layout": "LATENT"}, "kv_num_heads", "kv_num_heads is 2; a LATENT cache has one head"),
    (LATENT | {"v_quant_type": "PER_TENSOR"}, "v_quant_type", "V is read from the key cache"),
    (LATENT | {"v_cache_dtype": "int8"}, "v_cache_dtype", "say ''"),
    (LATENT | {"use_smooth_softmax": True}, "use_smooth_softmax", "takes no sink"),
]

# attributes, changed inputs (None takes one away), param, words of the message
BAD_INPUTS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"querry": f16(1)}, "querry", "there is no input 'querry'; the inputs are query, key"),
    ({}, {"query": None}, "query", "query is missing"),
    ({}, {"query": TensorInfo("float64", (6, 256))}, "query", "allowed are float16, bfloat16, float32"),
    ({}, {"query": f16(1, 6, 256)}, "query", "2 dimensions are allowed"),
    ({}, {"query": f16(6, 258)}, "query", "query has 258 channels; a multiple of 4 heads"),
    ({}, {"query": f16(6, 4 * 12)}, "query", "a head size of 12; a multiple of 8"),
    ({}, {"key": None, "value": None, "query": f16(6, 500)}, "query", "read as packed Q, K and V"),
    ({}, {"value": None}, "value", "key was given without value"),
    ({}, {"key": None}, "key", "value was given without key"),
    ({}, {"key": f16(5, 128)}, "key", "(6, 128) is expected"),
    ({}, {"value": f16(6, 64)}, "value", "(6, 128) is expected"),
    ({}, {"key": f32(6, 128)}, "key", "element type float32; allowed are float16"),
    ({}, {"value_cache": None}, "value_cache", "only a LATENT cache does without"),
    ({}, {"key_cache": None}, "key_cache", "key_cache is missing"),
    ({}, {"key_cache": f16(9, 16, 128)}, "key_cache", "4 dimensions"),
    ({}, {"key_cache": f16(9, 16, 4, 64)}, "key_cache", "(num_blocks, block_size, 2, 64)"),
    ({}, {"key_cache": f16(9, 16, 2, 32)}, "key_cache", "(num_blocks, block_size, 2, 64)"),
    ({}, {"key_cache": f16(9, 8, 2, 64)}, "key_cache", "blocks of 8 positions; a power of two of at least 16"),
    ({}, {"key_cache": f16(9, 48, 2, 64)}, "key_cache", "blocks of 48 positions"),
    ({}, {"value_cache": f16(8, 16, 2, 64)}, "value_cache", "blocks and heads must agree"),
    ({}, {"key_cache": f32(9, 16, 2, 64)}, "key_cache", "has the query's type, float16"),
    ({}, {"cumulative_sequence_length": i32(1)}, "cumulative_sequence_length", "(batch + 1,) with batch >= 1"),
    ({}, {"cumulative_sequence_length": TensorInfo("int64", (3,))}, "cumulative_sequence_length", "allowed are int32"),
    ({}, {"past_seqlens": i32(3)}, "past_seqlens", "(2,) is expected"),
    ({}, {"block_table": i32(3, 4)}, "block_table", "(2, max_blocks_per_sequence >= 1)"),
    ({}, {"block_table": i32(2, 0)}, "block_table", "max_blocks_per_sequence >= 1"),
    ({}, {"block_table": i32(8)}, "block_table", "block_table has shape (8,)"),
    ({}, {"slot_mapping": i32(5)}, "slot_mapping", "(6,) is expected"),
    ({}, {"head_sink": f16(2)}, "head_sink", "(4,) is expected"),
    ({}, {"head_sink": f32(4)}, "head_sink", "allowed are float16"),
    ({"use_smooth_softmax": True}, {"head_sink": f16(4)}, "head_sink", "a sink of 0 in every head"),
    ({}, {"q_norm_weight": f16(64)}, "k_norm_weight", "q_norm_weight was given without k_norm_weight"),
    ({}, {"q_norm_weight": f16(64), "k_norm_weight": f16(256)}, "k_norm_weight", "(64,) is expected"),
    ({"do_rotary": True}, {}, "cos_cache", "do_rotary is 1 without cos_cache"),
    ({}, ROTARY, "cos_cache", "do_rotary is 0"),
    ({"do_rotary": True}, {"cos_cache": f16(64, 32)}, "sin_cache", "cos_cache was given without sin_cache"),
    (
        {"do_rotary": True},
        {"cos_cache": f16(64, 12), "sin_cache": f16(64, 12)},
        "cos_cache",
        "12 columns; a multiple of 8",
    ),
    ({"do_rotary": True}, {"cos_cache": f16(64, 40), "sin_cache": f16(64, 40)}, "cos_cache", "half the head size, 32"),
    ({"do_rotary": True}, ROTARY | {"sin_cache": f16(63, 32)}, "sin_cache", "(64, 32) is expected"),
    ({"do_rotary": True, "rotary_offset": 8}, ROTARY, "rotary_offset", "pass the head size of 64"),
    ({}, {"attention_metadata": i32(4)}, "attention_metadata", "(2,) or (3,) is expected"),
    ({"v_head_size": 32}, {}, "v_head_size", "they differ only with kv_cache_layout 'LATENT'"),
    ({"v_head_size": 72}, {}, "v_head_size", "at most head_size 64"),
    (INT8_SPEC, {}, "k_quant_type", "k_quant_type is 'PER_TENSOR' but key_cache holds float16"),
    ({}, INT8_CACHES, "k_quant_type", "key_cache holds int8 codes but k_quant_type is 'NONE'"),
    (INT8_SPEC, INT8_CACHES | {"k_scale": None}, "k_scale", "a cache of int8 codes needs its scale"),
    (INT8_SPEC, INT8_CACHES | {"v_scale": f32(2)}, "v_scale", "PER_TENSOR takes one element"),
    (INT8_SPEC, INT8_CACHES | {"v_scale": f16(1)}, "v_scale", "allowed are float32"),
    (INT8_SPEC | {"k_quant_type": "PER_CHANNEL"}, INT8_CACHES | {"k_scale": f32(64, 2)}, "k_scale", "takes (2, 1, 64)"),
    ({}, {"k_scale": f32(1)}, "k_scale", "the cache is not quantised"),
    (INT8_SPEC, INT8_CACHES | {"key_cache": TensorInfo("uint8", (9, 16, 2, 32))}, "k_cache_dtype", "needs 'int4'"),
    (INT8_SPEC | {"k_cache_dtype": "float16"}, INT8_CACHES, "k_cache_dtype", "say '' or 'int8'"),
    (
        INT8_SPEC | {"k_cache_dtype": "int4"},
        INT8_CACHES | {"key_cache": TensorInfo("uint8", (9, 16, 2, 64))},
        "key_cache",
        "(num_blocks, block_size, 2, 32) is expected for int4",
    ),
    ({}, {"key_cache": i32(9, 16, 2, 64)}, "key_cache", "element type int32"),
]

BAD_LATENT_INPUTS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"key": None}, "key", "a LATENT cache stores the rows of key"),
    ({}, {"value": f16(6, 64)}, "value", "must be absent"),
    ({}, {"value_cache": f16(9, 16, 1, 64)}, "value_cache", "a LATENT cache is one cache"),
    ({}, {"head_sink": f16(4)}, "head_sink", "no norm weights and no sink"),
    ({}, {"q_norm_weight": f16(64), "k_norm_weight": f16(64)}, "q_norm_weight", "no norm weights"),
    ({}, {"v_scale": f32(1)}, "v_scale", "V is dequantised with k_scale"),
    ({"v_head_size": 32}, {}, "scale", "1 / sqrt(head_size) is not the width before absorption"),
    ({"v_head_size": 128, "scale": 1.0}, {}, "v_head_size", "at most head_size 64"),
]


def raised(call: Any, error_type: type[PageloomError] = InvalidArgument) -> PageloomError:
    with pytest.raises(error_type) as caught:
        call()
    return caught.value


def changed(good: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: info for name, info in (good | changes).items() if info is not None}


@pytest.mark.parametrize(("attributes", "param", "words"), BAD_ATTRIBUTES)
def test_a_bad_attribute_is_refused(attributes: dict[str, Any], param: str, words: str) -> None:
    error = raised(lambda: PagedAttentionSpec(**(HEADS | attributes)))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_INPUTS)
def test_a_bad_input_is_refused(attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str) -> None:
    spec = PagedAttentionSpec(**(HEADS | attributes))
    error = raised(lambda: check_shapes(spec, changed(GOOD, changes)))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_LATENT_INPUTS)
def test_a_bad_input_of_a_latent_cache_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    spec = PagedAttentionSpec(**(LATENT | attributes))
    error = raised(lambda: check_shapes(spec, changed(GOOD_LATENT, changes)))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize("param", ["k_cache_dtype", "v_cache_dtype"])
def test_the_reserved_float4_is_not_supported(param: str) -> None:
    error = raised(lambda: PagedAttentionSpec(**HEADS, **{param: "float4e2m1"}), NotSupported)
    assert error.param == param
    assert "use 'int4'" in error.message


@pytest.mark.parametrize(
    ("cumulative", "past", "param", "words"),
    [
        ([1, 2, 6], [0, 0], "cumulative_sequence_length", "starts with 1; 0 is expected"),
        ([0, 2, 5], [0, 0], "cumulative_sequence_length", "ends with 5; the 6 tokens of query are expected"),
        ([0, 7, 6], [0, 0], "cumulative_sequence_length", "falls from 7 to 6 at sequence 1"),
        ([0, 2, 6], [-1, 0], "past_seqlens", "past_seqlens of sequence 0 is -1"),
        ([0, 2, 6], [0, 61], "block_table", "61 cached and 4 new tokens; its row of block_table maps 64"),
        ([0, 0, 6], [65, 0], "block_table", "65 cached and 0 new tokens"),
    ],
)
def test_bad_lengths_on_the_host_are_refused(cumulative: list[int], past: list[int], param: str, words: str) -> None:
    shape = check_shapes(PagedAttentionSpec(**HEADS), GOOD)
    error = raised(lambda: check_lengths(shape, cumulative, past))
    assert error.param == param
    assert words in error.message


def test_too_few_rows_of_cos_are_refused_where_the_host_knows_the_lengths() -> None:
    shape = check_shapes(
        PagedAttentionSpec(**HEADS, do_rotary=True), GOOD | {"cos_cache": f16(9, 32), "sin_cache": f16(9, 32)}
    )
    error = raised(lambda: check_lengths(shape, [0, 2, 6], [0, 6]))
    assert (error.param, shape.position_limit) == ("cos_cache", 9)
    assert "reaches 10 positions; cos_cache has rows for 9" in error.message


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ([-1, 4], "holds -1; at least 0"),
        ([1, -4], "holds -4"),
        ([1, 20, 21], "lower bound 21; at most its upper bound 20"),
    ],
)
def test_bad_metadata_is_refused(metadata: list[int], words: str) -> None:
    shape = check_shapes(PagedAttentionSpec(**HEADS), GOOD)
    error = raised(lambda: check_metadata(shape, metadata))
    assert error.param == "attention_metadata"
    assert words in error.message


def test_metadata_is_clamped_to_what_the_shapes_allow() -> None:
    shape = check_shapes(PagedAttentionSpec(**HEADS), GOOD)
    assert check_metadata(shape, [0, 0]) == (6, 64, 0)
    assert check_metadata(shape, [100, 1000, 64]) == (6, 64, 64)
    assert check_metadata(shape, [1, 20, 3]) == (1, 20, 3)


def test_lengths_may_fill_a_sequence_exactly() -> None:
    shape = check_shapes(PagedAttentionSpec(**HEADS), GOOD)
    check_lengths(shape, [0, 0, 6], [64, 58])


def test_good_calls_are_resolved() -> None:
    separate = check_shapes(PagedAttentionSpec(**HEADS), GOOD)
    assert (separate.mode, separate.head_size, separate.capacity, separate.num_slots) == (QkvMode.SEPARATE, 64, 64, 144)
    packed = changed(GOOD, {"key": None, "value": None, "query": f16(6, 512)})
    assert check_shapes(PagedAttentionSpec(**HEADS), packed).mode is QkvMode.PACKED
    latent = check_shapes(PagedAttentionSpec(**LATENT, v_head_size=48, scale=0.2), GOOD_LATENT)
    assert (latent.mode, latent.v_head_size) == (QkvMode.LATENT, 48)
    int4 = {"key_cache": TensorInfo("uint8", (9, 16, 2, 32)), "k_scale": f32(2, 1, 64)}
    mixed = check_shapes(PagedAttentionSpec(**HEADS, k_quant_type="PER_CHANNEL", k_cache_dtype="int4"), GOOD | int4)
    assert (mixed.key_storage.element, mixed.value_storage.element) == ("int4", "float16")
    empty = {"query": f16(0, 256), "key": f16(0, 128), "value": f16(0, 128)}
    assert check_shapes(PagedAttentionSpec(**HEADS), GOOD | empty).num_tokens == 0
