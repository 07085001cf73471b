"""Wrong calls of the CPU operators: the errors of the operators' own checks, and those of arrays and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tensors import TensorInfo
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import Tier
from pageloom.errors import CapacityExceeded, InvalidArgument, NotSupported, PageloomError
from tests.unit.attention.test_bad_other_calls import BAD_GROUP_QUERY_INPUTS, BAD_ONNX, DECODE, SQUARE
from tests.unit.attention.test_bad_other_calls import HEADS as GROUP_QUERY_HEADS
from tests.unit.attention.test_bad_paged_calls import (
    BAD_INPUTS,
    BAD_LATENT_INPUTS,
    GOOD,
    GOOD_LATENT,
    HEADS,
    LATENT,
)

CASES = {case.name: case for case in all_cases(quick=True)}
OPERATORS = CpuOperators()
SLOWEST = {"level": "scalar"} if OPERATORS.level else {}


def zeros(infos: Mapping[str, TensorInfo | None]) -> dict[str, Array]:
    return {name: np.zeros(info.shape, NUMPY_DTYPES[info.dtype]) for name, info in infos.items() if info is not None}


def raised(call: Callable[[], object], error_type: type[PageloomError] = InvalidArgument) -> PageloomError:
    with pytest.raises(error_type) as caught:
        call()
    return caught.value


def refused(operator: CpuOperator, inputs: Mapping[str, Any], param: str, words: str) -> None:
    """The same error from a call, from `record` and from `explain`."""
    for call in (operator, operator.record, operator.explain):
        error = raised(lambda call=call: call(**inputs))  # type: ignore[misc]
        assert error.param == param
        assert words in error.message


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_INPUTS)
def test_a_bad_input_of_paged_attention_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    operator = OPERATORS.paged_attention(PagedAttentionSpec(**(HEADS | attributes)))
    refused(operator, zeros(GOOD | changes), param, words)


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_LATENT_INPUTS)
def test_a_bad_input_of_a_latent_cache_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    operator = OPERATORS.paged_attention(PagedAttentionSpec(**(LATENT | attributes)))
    refused(operator, zeros(GOOD_LATENT | changes), param, words)


@pytest.mark.parametrize(("attributes", "changes", "total", "param", "words"), BAD_GROUP_QUERY_INPUTS)
def test_a_bad_input_of_group_query_attention_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], total: int, param: str, words: str
) -> None:
    operator = OPERATORS.group_query_attention(GroupQueryAttentionSpec(**(GROUP_QUERY_HEADS | attributes)))
    inputs = zeros(DECODE | changes) | {"total_sequence_length": np.array(total, np.int32)}
    refused(operator, inputs, param, words)


@pytest.mark.parametrize("tier", ["reference", None])
def test_outputs_that_no_memory_holds_are_refused(tier: Tier | None) -> None:
    operator = OPERATORS.group_query_attention(GroupQueryAttentionSpec(num_heads=512, kv_num_heads=512))
    longest = 2**31 - 1
    inputs = zeros({
        "query": TensorInfo("float32", (1, 1, 512 * 256)),
        "key": TensorInfo("float32", (1, 1, 512 * 256)),
        "value": TensorInfo("float32", (1, 1, 512 * 256)),
        "past_key": TensorInfo("float32", (1, 512, 1, 256)),
        "past_value": TensorInfo("float32", (1, 512, 1, 256)),
        "seqlens_k": TensorInfo("int32", (1,)),
    }) | {"total_sequence_length": np.array(longest, np.int32)}  # fmt: skip
    error = raised(lambda: operator(tier=tier, **inputs), CapacityExceeded)
    assert str(longest) in error.message


@pytest.mark.parametrize(("attributes", "changes", "param", "words"), BAD_ONNX)
def test_a_bad_input_of_attention_is_refused(
    attributes: dict[str, Any], changes: dict[str, Any], param: str, words: str
) -> None:
    refused(OPERATORS.attention(OnnxAttentionSpec(**attributes)), zeros(SQUARE | changes), param, words)


@pytest.mark.parametrize(
    ("name", "changes", "param", "words"),
    [
        ("paged/rotary/half/ragged", {"past_seqlens": [1, 2, 3, 4]}, "past_seqlens", "is a list; an array, or any"),
        ("paged/rotary/half/ragged", {"past_seqlens": 1}, "past_seqlens", "is a int"),
        ("paged/rotary/half/ragged", {"query": np.zeros((2, 2), np.complex64)}, "query", "element type complex64"),
        ("paged/rotary/half/ragged", {"query": np.array("text")}, "query", "element type <U4"),
        ("paged/rotary/half/ragged", {"past_seqlens": np.zeros(4, ">i4")}, "past_seqlens", "of the other byte order"),
        ("paged/rotary/half/ragged", {"past_seqlens": np.array([-1, 0, 0, 0], np.int32)}, "past_seqlens", "is -1"),
        ("paged/rotary/half/ragged", {"past_seqlens": np.full(4, 2**30, np.int32)}, "block_table", "its row of block"),
        ("group_query/window/1_decode", {"total_sequence_length": None}, "total_sequence_length", "always required"),
        ("group_query/window/1_decode", {"total_sequence_length": np.zeros(2, np.int32)}, "total_sequence_length",
         "one int32 is expected"),
        ("group_query/window/1_decode", {"total_sequence_length": np.array(0, np.int32)}, "total_sequence_length",
         "at least 1"),
        ("group_query/window/1_decode", {"seqlens_k": np.array([99, 3], np.int32)}, "seqlens_k", "is 99; 0 to"),
        ("onnx/external_cache/causal_nan/decode", {"nonpad_kv_seqlen": np.array([41, 1])}, "nonpad_kv_seqlen", "is 41"),
        ("onnx/external_cache/causal_nan/decode", {"outputs": ["present_key"]}, "outputs", "K is the whole cache"),
        ("onnx/softcap", {"outputs": ["Z"]}, "outputs", "outputs is 'Z'; allowed are 'Y'"),
        ("scatter/axis_1", {"write_indices": np.array([8, 0])}, "write_indices", "row 0 is 8; 0 to 7 is allowed"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused(name: str, changes: dict[str, Any], param: str, words: str) -> None:
    operator, inputs = call_of(name)
    refused(operator, inputs | changes, param, words)


def call_of(name: str) -> tuple[CpuOperator, dict[str, Any]]:
    """The operator of a case, and its inputs."""
    case = CASES[name]
    makers: dict[str, Callable[..., CpuOperator]] = {
        "paged_attention": OPERATORS.paged_attention,
        "group_query_attention": OPERATORS.group_query_attention,
        "onnx_attention": OPERATORS.attention,
        "tensor_scatter": OPERATORS.tensor_scatter,
    }
    return makers[case.operator](case.spec), dict(case.inputs())


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


PAGED = "paged/rotary/half/ragged"
QUERY_GROUPS = "group_query/ragged/decode_nan"
WRITTEN: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str, str]] = {
    "a read-only cache": (PAGED, lambda given: {"key_cache": read_only(given["key_cache"])}, "key_cache", "read-only"),
    "a cache with gaps": (
        PAGED,
        lambda given: {"value_cache": np.repeat(given["value_cache"], 2, axis=1)[:, ::2]},
        "value_cache",
        "value_cache is not contiguous; it is written in place",
    ),
    "one array for two caches": (
        PAGED,
        lambda given: {"value_cache": given["key_cache"]},
        "value_cache",
        "value_cache and key_cache share memory, and key_cache is written",
    ),
    "a cache output elsewhere": (
        PAGED,
        lambda given: {"key_cache_out": given["key_cache"].copy()},
        "key_cache_out",
        "is not the array key_cache, which is updated in place",
    ),
    "a present of another shape": (
        QUERY_GROUPS,
        lambda given: {"present_key": given["past_key"][:, :, :-1].copy()},
        "present_key",
        "is expected",
    ),
    "a present that overlaps its past": (
        QUERY_GROUPS,
        lambda given: overlapping(given["past_key"]),
        "past_key",
        "past_key and present_key share memory",
    ),
    "a present that is the other past": (
        QUERY_GROUPS,
        lambda given: {"present_value": given["past_key"]},
        "past_key",
        "past_key and present_value share memory",
    ),
    "one present for both": (
        QUERY_GROUPS,
        lambda given: dict.fromkeys(("present_key", "present_value"), given["past_key"].copy()),
        "present_value",
        "present_value and present_key share memory",
    ),
    "a present in place that is too short": (
        "group_query/subsequent_prompt",
        lambda given: {"present_key": given["past_key"]},
        "present_key",
        "present_key is past_key with 256 rows, and 259 tokens need as many",
    ),
    "a joined cache of attention in place": (
        "onnx/opset_24_full/decode",
        lambda given: {"present_key": given["past_key"]},
        "present_key",
        "is expected",
    ),
    "a read-only present cache": (
        "scatter/no_indices",
        lambda given: {"present_cache": read_only(given["past_cache"])},
        "present_cache",
        "present_cache is read-only",
    ),
    "a present cache that is the update": (
        "scatter/no_indices",
        lambda given: {"present_cache": given["update"]},
        "update",
        "update and present_cache share memory",
    ),
}


def overlapping(past: Array) -> dict[str, Array]:
    """past_key and present_key one element apart in one stretch of memory."""
    memory = np.zeros(past.size + 1, past.dtype)
    return {"past_key": memory[:-1].reshape(past.shape), "present_key": memory[1:].reshape(past.shape)}


@pytest.mark.parametrize("what", WRITTEN)
def test_an_array_that_cannot_be_written_is_refused(what: str) -> None:
    name, change, param, words = WRITTEN[what]
    operator, inputs = call_of(name)
    refused(operator, inputs | change(inputs), param, words)


def test_an_input_with_gaps_is_copied_by_a_call_and_refused_by_a_recording() -> None:
    operator, inputs = call_of("paged/sink/decode")
    gaps = inputs | {"query": np.repeat(inputs["query"], 2, axis=1)[:, ::2]}
    error = raised(lambda: operator.record(**gaps))
    assert (error.param, "give np.ascontiguousarray(query)" in error.message) == ("query", True)
    outputs = operator(**gaps)
    assert np.array_equal(outputs["output"], operator(**call_of("paged/sink/decode")[1])["output"])


def test_a_tier_that_there_is_not_is_refused() -> None:
    operator, inputs = call_of("paged/sink/decode")
    refused(operator, inputs | {"tier": "warp"}, "tier", "allowed are 'flash-decoding', 'flash', 'naive', 'reference'")


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ({"threads": 0}, "threads", "threads is 0; an integer of at least 1"),
        ({"threads": 1.5}, "threads", "threads is 1.5"),
        ({"tier": "warp"}, "tier", "allowed are 'flash-decoding'"),
        ({"level": "sse"}, "level", "allowed are 'scalar'"),
        ({"approximate": "fp8"}, "approximate", "allowed are 'int16', 'int8-query'"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, Any], param: str, words: str) -> None:
    error = raised(lambda: CpuOperators(**options))
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("PAGELOOM_CPU_THREADS", "two", "PAGELOOM_CPU_THREADS is 'two'; a whole number"),
        ("PAGELOOM_CPU_THREADS", "-1", "threads is -1"),
        ("PAGELOOM_CPU_PIN", "yes", "PAGELOOM_CPU_PIN is 'yes'; 0 or 1"),
        ("PAGELOOM_CPU_LEVEL", "sse", "level is 'sse'"),
        ("PAGELOOM_CPU_TIER", "warp", "tier is 'warp'"),
        ("PAGELOOM_CPU_APPROXIMATE", "fp8", "approximate is 'fp8'"),
    ],
)
def test_a_bad_environment_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, words: str
) -> None:
    monkeypatch.setenv(variable, text)
    assert words in raised(CpuOperators).message


def test_an_instruction_set_of_another_machine_is_refused_with_its_reason() -> None:
    error = raised(lambda: CpuOperators(level="neon"), NotSupported)
    assert error.param == "level"
    assert "level neon cannot be used: " in error.message


@pytest.mark.parametrize("name", ["int16", "int8-query"])
def test_approximate_products_are_refused_where_no_kernel_does_them(name: str) -> None:
    error = raised(lambda: CpuOperators(approximate=name, **SLOWEST), NotSupported)
    assert error.param == "approximate"
    assert f"approximate {name} cannot be used" in error.message
