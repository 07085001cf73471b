"""Wrong calls of GroupQueryAttention, Attention and TensorScatter: each raises its typed error, naming the argument."""

from __future__ import annotations

from typing import Any

import pytest

from pageloom.attention.group_query.check import KvMode, check_lengths
from pageloom.attention.group_query.check import check_shapes as check_group_query
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.onnx.check import check_nonpad
from pageloom.attention.onnx.check import check_shapes as check_onnx
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.scatter.spec import TensorScatterSpec, check_indices
from pageloom.attention.scatter.spec import check_shapes as check_scatter
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.errors import InvalidArgument, NotSupported

HEADS = {"num_heads": 4, "kv_num_heads": 2}


def info(*shape: int, dtype: DType = "float32") -> TensorInfo:
    return TensorInfo(dtype, shape)


DECODE = {
    "query": info(2, 1, 64), "key": info(2, 1, 32), "value": info(2, 1, 32),
    "past_key": info(2, 2, 9, 16), "past_value": info(2, 2, 9, 16),
    "seqlens_k": info(2, dtype="int32"), "total_sequence_length": info(dtype="int32"),
}  # fmt: skip
INT8 = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}

BAD_GROUP_QUERY_ATTRIBUTES: list[tuple[dict[str, Any], str, str]] = [
    ({"num_heads": 5}, "kv_num_heads", "no multiple"),
    ({"qk_output": 3}, "qk_output", "allowed are 0, 1, 2"),
    ({"causal": False, "local_window_size": 4}, "local_window_size", "a window needs causal 1"),
    ({"v_quant_type": "PER_ROW"}, "v_quant_type", "allowed are 'NONE'"),
    ({"kv_cache_bit_width": 8}, "kv_cache_bit_width", "with k_quant_type 'NONE' and v_quant_type 'NONE'; 0 is allowed"),
    (INT8 | {"kv_cache_bit_width": 2}, "kv_cache_bit_width", "4 or 8 is allowed"),
    (INT8 | {"v_cache_bit_width": 0}, "v_cache_bit_width", "V has 0 bits with v_quant_type 'PER_TENSOR'; 4 or 8"),
    ({"k_cache_bit_width": 8}, "k_cache_bit_width", "K has 8 bits with k_quant_type 'NONE'; 0 is allowed"),
    ({"k_norm_epsilon": 0.0}, "k_norm_epsilon", "above 0"),
    ({"sliding_window_cache": True}, "local_window_size", "give W >= 1"),
    ({"smooth_softmax": 2}, "smooth_softmax", "allowed are -1, 0, 1"),
]
BAD_GROUP_QUERY_INPUTS: list[tuple[dict[str, Any], dict[str, Any], int, str, str]] = [
    ({}, {"query": info(2, 64)}, 10, "query", "3 dimensions"),
    ({}, {"query": info(2, 1, 66)}, 10, "query", "a multiple of 4 heads"),
    ({}, {"query": info(2, 1, 16)}, 10, "query", "a head size of 4; a multiple of 8"),
    ({}, {"key": None}, 10, "key", "value was given without key"),
    ({}, {"key": info(2, 3, 32)}, 10, "key", "(2, 1, 32) is expected"),
    ({}, {"seqlens_k": info(3, dtype="int32")}, 10, "seqlens_k", "(2,) is expected"),
    ({}, {}, 0, "total_sequence_length", "at least 1"),
    ({}, {"past_key": None, "past_value": None}, 10, "past_key", "10 tokens with 1 new ones need the past"),
    ({}, {"past_value": None}, 10, "past_value", "past_key was given without past_value"),
    ({}, {"past_value": info(2, 2, 8, 16)}, 10, "past_value", "has 8 rows and past_key 9"),
    ({}, {"past_key": info(2, 2, 9, 32)}, 10, "past_key", "(2, 2, 9, 16) is expected"),
    (
        {},
        {"query": info(2, 3, 64), "key": info(2, 3, 32), "value": info(2, 3, 32)},
        12,
        "query",
        "3 rows after a past in a batch of 2; give query_seqlens",
    ),
    ({}, {"key": info(2, 0, 32), "value": info(2, 0, 32)}, 10, "past_key", "9 rows for 10 tokens"),
    ({"do_rotary": True}, {}, 10, "cos_cache", "give both"),
    ({"do_rotary": True}, {"cos_cache": info(9, 8), "sin_cache": info(9, 8)}, 10, "cos_cache", "9 rows; at least"),
    ({}, {"attention_bias": info(2, 3, 1, 10)}, 10, "attention_bias", "1 or 4"),
    ({}, {"attention_bias": info(1, 1, 1, 9)}, 10, "attention_bias", "at least 10"),
    ({}, {"head_sink": info(2)}, 10, "head_sink", "(4,) is expected"),
    ({}, {"position_ids": info(2, 1, dtype="int32")}, 10, "position_ids", "allowed are int64"),
    ({}, {"q_norm_weight": info(16)}, 10, "k_norm_weight", "without k_norm_weight"),
    ({}, {"k_scale": info(1)}, 10, "k_scale", "not quantised"),
    (INT8, {}, 10, "past_key", "allowed are int8, float8e4m3fn"),
    ({"causal": False}, {"query_seqlens": info(2, dtype="int32")}, 10, "query_seqlens", "it needs causal 1"),
    (
        {"sliding_window_cache": True, "local_window_size": 12},
        {},
        10,
        "past_key",
        "9 rows; at least local_window_size 12",
    ),
]
SQUARE = {"Q": info(2, 4, 5, 16), "K": info(2, 2, 5, 16), "V": info(2, 2, 5, 24)}
BAD_ONNX: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"Q": info(5, 16)}, "Q", "3 or 4 dimensions"),
    ({}, {"Q": info(2, 5, 64)}, "K", "3 dimensions"),
    ({}, {"V": info(2, 2, 5, 0)}, "V", "at least one channel"),
    ({}, {"K": info(2, 2, 5, 8)}, "K", "batch and head size must agree"),
    ({}, {"K": info(2, 3, 5, 16), "V": info(2, 3, 5, 16)}, "K", "4 heads, no multiple of the 3"),
    ({}, {"V": info(2, 2, 6, 16)}, "V", "batch, heads and rows must agree"),
    ({}, {"K": info(2, 2, 5, 16, dtype="float16")}, "K", "allowed are float32"),
    ({}, {"past_key": info(2, 2, 3, 16)}, "past_value", "without past_value"),
    ({}, {"past_key": info(2, 2, 3, 16), "past_value": info(2, 2, 3, 16)}, "past_value", "(2, 2, 3, 24) is expected"),
    ({}, {"attn_mask": info(4, 5)}, "attn_mask", "must broadcast to (2, 4, 5, 5)"),
    ({}, {"attn_mask": info(5, 6)}, "attn_mask", "only the last may be shorter"),
    ({}, {"attn_mask": info(5, 5, dtype="int32")}, "attn_mask", "allowed are bool, float32"),
    ({"opset": 23}, {"nonpad_kv_seqlen": info(2, dtype="int64")}, "nonpad_kv_seqlen", "opset 23 does not have it"),
    (
        {},
        {
            "nonpad_kv_seqlen": info(2, dtype="int64"),
            "past_key": info(2, 2, 3, 16),
            "past_value": info(2, 2, 3, 24),
        },
        "past_key",
        "K is the whole cache",
    ),
    ({"q_num_heads": 8, "kv_num_heads": 2}, {}, "Q", "4 heads and q_num_heads is 8"),
]
CACHE = {"past_cache": info(2, 3, 9, 8), "update": info(2, 3, 4, 8)}


def raised(call: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        call()
    return caught.value


def changed(good: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in (good | changes).items() if tensor is not None}


@pytest.mark.parametrize(("attributes", "param", "words"), BAD_GROUP_QUERY_ATTRIBUTES)
def test_a_bad_attribute_of_group_query_attention_is_refused(
    attributes: dict[str, Any], param: str, words: str
) -> None:
    error = raised(lambda: GroupQueryAttentionSpec(**(HEADS | attributes)))
    assert error.param == param
    assert words in error.message


def test_qk_output_of_a_sliding_window_cache_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="columns were evicted") as caught:
        GroupQueryAttentionSpec(**HEADS, sliding_window_cache=True, local_window_size=4, qk_output=1)
    assert caught.value.param == "qk_output"


@pytest.mark.parametrize(("attributes", "changes", "total", "param", "words"), BAD_GROUP_QUERY_INPUTS)
def test_a_bad_input_of_group_query_attention_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], total: int, param: str, words: str
) -> None:
    spec = GroupQueryAttentionSpec(**(HEADS | attributes))
    error = raised(lambda: check_group_query(spec, changed(DECODE, changes), total))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("seqlens_k", "query_seqlens", "param", "words"),
    [
        ([10, 3], None, "seqlens_k", "seqlens_k of sequence 0 is 10; 0 to 9 is allowed"),
        ([9, -1], None, "seqlens_k", "sequence 1 is -1"),
        ([9, 3], [2, 1], "query_seqlens", "sequence 0 is 2; 0 to 1 is allowed"),
        ([9, 3], [-1, 1], "query_seqlens", "sequence 0 is -1"),
        ([9, 3], [0, 1], "past_key", "sequence 0 has 10 cached tokens; past_key has 9 rows"),
    ],
)
def test_bad_lengths_of_group_query_attention_on_the_host_are_refused(
    seqlens_k: list[int], query_seqlens: list[int] | None, param: str, words: str
) -> None:
    spec = GroupQueryAttentionSpec(**HEADS)
    given = DECODE | ({"query_seqlens": info(2, dtype="int32")} if query_seqlens else {})
    shape = check_group_query(spec, given, 10)
    error = raised(lambda: check_lengths(spec, shape, seqlens_k, query_seqlens))
    assert error.param == param
    assert words in error.message


def test_good_calls_of_group_query_attention_are_resolved() -> None:
    spec = GroupQueryAttentionSpec(**HEADS)
    shape = check_group_query(spec, DECODE, 10)
    assert (shape.mode, shape.head_size, shape.present_length, shape.first_prompt) == (KvMode.SEPARATE, 16, 10, False)
    check_lengths(spec, shape, [9, 3])
    packed = changed(DECODE, {"query": info(2, 1, 128), "key": None, "value": None})
    assert check_group_query(spec, packed, 10).mode is KvMode.PACKED
    shared = DECODE | {"key": info(2, 0, 32), "value": info(2, 0, 32)}
    assert check_group_query(spec, shared, 9).mode is KvMode.SHARED


def test_a_sliding_window_cache_keeps_what_the_contract_counts() -> None:
    spec = GroupQueryAttentionSpec(**HEADS, sliding_window_cache=True, local_window_size=4)
    assert [spec.resident_length(total, 6) for total in range(1, 13)] == [1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6]


@pytest.mark.parametrize(
    ("attributes", "param", "words"),
    [
        ({"softcap": -1.0}, "softcap", "at least 0"),
        ({"softmax_precision": 7}, "softmax_precision", "allowed are 1, 10, 11, 16"),
        ({"q_num_heads": 4}, "kv_num_heads", "give both or neither"),
        ({"qk_matmul_output_mode": 4}, "qk_matmul_output_mode", "allowed are 0, 1, 2, 3"),
        ({"opset": 22}, "opset", "allowed are 23, 24"),
    ],
)
def test_a_bad_attribute_of_attention_is_refused(attributes: dict[str, Any], param: str, words: str) -> None:
    error = raised(lambda: OnnxAttentionSpec(**attributes))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_ONNX)
def test_a_bad_input_of_attention_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    error = raised(lambda: check_onnx(OnnxAttentionSpec(**attributes), SQUARE | changes))
    assert error.param == param
    assert words in error.message


def test_flat_inputs_of_attention_need_their_head_counts() -> None:
    flat = {"Q": info(2, 5, 64), "K": info(2, 5, 32), "V": info(2, 5, 48)}
    assert raised(lambda: check_onnx(OnnxAttentionSpec(), flat)).param == "q_num_heads"
    shape = check_onnx(OnnxAttentionSpec(q_num_heads=4, kv_num_heads=2), flat)
    assert (shape.head_size, shape.v_head_size, shape.flat) == (16, 24, True)


@pytest.mark.parametrize(
    ("lengths", "columns", "param"),
    [([6, 0], None, "nonpad_kv_seqlen"), ([-1, 0], None, "nonpad_kv_seqlen"), ([5, 4], 4, "attn_mask")],
)
def test_bad_lengths_of_an_external_cache_are_refused(lengths: list[int], columns: int | None, param: str) -> None:
    shape = check_onnx(OnnxAttentionSpec(), SQUARE | {"nonpad_kv_seqlen": info(2, dtype="int64")})
    assert raised(lambda: check_nonpad(shape, lengths, columns)).param == param


@pytest.mark.parametrize(
    ("attributes", "changes", "param", "words"),
    [
        ({"axis": 4}, {}, "axis", "1 to 3, or -3 to -1, is allowed"),
        ({"axis": -4}, {}, "axis", "is allowed"),
        ({}, {"update": info(2, 3, 10, 8)}, "update", "update is not the longer"),
        ({}, {"update": info(2, 2, 4, 8)}, "update", "may differ in dimension 2 alone"),
        ({}, {"update": info(2, 3, 4)}, "update", "may differ in dimension 2 alone"),
        ({}, {"update": info(2, 3, 4, 8, dtype="float16")}, "update", "allowed are float32"),
        ({}, {"write_indices": info(3, dtype="int64")}, "write_indices", "(2,) is expected"),
    ],
)
def test_a_bad_input_of_tensor_scatter_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    error = raised(lambda: check_scatter(TensorScatterSpec(**attributes), CACHE | changes))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(("attributes", "param"), [({"axis": 0}, "axis"), ({"mode": "wrap"}, "mode")])
def test_a_bad_attribute_of_tensor_scatter_is_refused(attributes: dict[str, Any], param: str) -> None:
    assert raised(lambda: TensorScatterSpec(**attributes)).param == param


@pytest.mark.parametrize(
    ("mode", "indices", "words"),
    [("linear", [5, 6], "row 1 is 6; 0 to 5"), ("circular", [-1, 0], "row 0 is -1")],
)
def test_bad_write_indices_are_refused(mode: Any, indices: list[int], words: str) -> None:
    spec = TensorScatterSpec(mode=mode)
    error = raised(lambda: check_indices(spec, check_scatter(spec, CACHE), indices))
    assert error.param == "write_indices"
    assert words in error.message
