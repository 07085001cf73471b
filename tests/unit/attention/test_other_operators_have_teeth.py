"""The quick cases of GroupQueryAttention, Attention and TensorScatter catch known ways of being wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pageloom.attention.group_query.reference as group_query
import pageloom.attention.onnx.reference as onnx
import pageloom.attention.scatter.reference as scatter
from pageloom.attention.cases.compare import compare_outputs
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_tensors
from pageloom.attention.numerics.softmax import attend

Edit = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]]]


def run(operator: str, spec: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a reference, rounded to the operator's type."""
    dtype = next(iter(inputs.values())).dtype
    if operator == "tensor_scatter":
        return {"present_cache": scatter.tensor_scatter(spec, inputs)}
    if operator == "onnx_attention":
        attention = onnx.onnx_attention(spec, inputs)
        return {
            "Y": attention.output.astype(dtype),
            "present_key": attention.present_key,
            "present_value": attention.present_value,
            "qk_matmul_output": attention.qk_matmul_output.astype(dtype),
        }
    result = group_query.group_query_attention(spec, inputs)
    outputs = {
        "output": result.output.astype(dtype),
        "present_key": result.present_key,
        "present_value": result.present_value,
    }
    return outputs | ({} if result.output_qk is None else {"output_qk": result.output_qk.astype(dtype)})


def is_caught(operator: str, monkeypatch: pytest.MonkeyPatch, edit: Edit, **patches: Any) -> bool:
    """Whether a quick case fails the operator called as `edit` says, with names of its module replaced."""
    module = {"group_query_attention": group_query, "onnx_attention": onnx, "tensor_scatter": scatter}[operator]
    for case in all_cases(operator=operator, quick=True):
        inputs = case.inputs()
        expected = case.expected(inputs)
        with monkeypatch.context() as patched:
            for name, value in patches.items():
                patched.setattr(module, name, value)
            try:
                outputs = run(operator, *edit(case.spec, inputs))
            except FloatingPointError:
                return True
        if not compare_outputs(expected, as_tensors(outputs)).passed:
            return True
    return False


def honest(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return spec, inputs


def given(**changes: Any) -> Edit:
    return lambda spec, inputs: (replace(spec, **changes), inputs)


def wider_window(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return replace(spec, local_window_size=spec.local_window_size + 1 if spec.windowed else -1), inputs


def first_length_for_all(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return spec, inputs | {"seqlens_k": np.full_like(inputs["seqlens_k"], inputs["seqlens_k"][0])}


def bias_before_softcap(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    bias, cap, scale = options.pop("bias"), options.pop("softcap"), options.pop("scale")
    if bias is None or not cap:
        return attend(query, keys, values, visible, bias=bias, softcap=cap, scale=scale, **options)
    logits = scale * (query @ keys.swapaxes(-1, -2)) + bias
    capped = cap * np.tanh(logits / cap)
    return attend(query * 0, keys, values, visible, bias=capped, scale=1.0, **options)


def mean_of_nothing(query: Any, keys: Any, values: Any, visible: Any, **options: Any) -> Any:
    return attend(query, keys, values, visible | ~visible.any(axis=-1, keepdims=True), **options)


def bottom_right(spec: Any, shape: Any, inputs: Any) -> Any:
    rows, keys = np.arange(shape.q_sequence_length)[:, None], np.arange(shape.total_sequence_length)
    lengths = inputs.get("nonpad_kv_seqlen", np.full(shape.batch_size, shape.total_sequence_length))[:, None, None]
    visible = (keys < lengths) & ((keys <= rows + lengths - shape.q_sequence_length) | (not spec.is_causal))
    return visible[:, None]


def top_left(spec: Any, shape: Any, inputs: Any) -> Any:
    rows, keys = np.arange(shape.q_sequence_length)[:, None], np.arange(shape.total_sequence_length)
    lengths = inputs.get("nonpad_kv_seqlen", np.full(shape.batch_size, shape.total_sequence_length))[:, None, None]
    return ((keys < lengths) & ((keys <= rows) | (not spec.is_causal)))[:, None]


@pytest.mark.parametrize("operator", ["group_query_attention", "onnx_attention", "tensor_scatter"])
def test_the_reference_itself_passes_once_its_outputs_are_rounded(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_caught(operator, monkeypatch, honest)


@pytest.mark.parametrize(
    "edit",
    [
        wider_window,
        first_length_for_all,
        given(softcap=0.0),
        given(rotary_interleaved=True),
        given(causal=True),
        given(smooth_softmax=0),
    ],
    ids=["wider_window", "first_length_for_all", "no_softcap", "interleaved", "always_causal", "no_smooth_softmax"],
)
def test_a_wrong_group_query_attention_is_caught(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("group_query_attention", monkeypatch, edit)


def test_a_bias_added_before_the_softcap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("group_query_attention", monkeypatch, honest, attend=bias_before_softcap)


@pytest.mark.parametrize("rule", [top_left, bottom_right])
def test_another_causal_rule_of_attention_is_caught(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("onnx_attention", monkeypatch, honest, visible_keys=rule)


def test_a_row_without_keys_that_is_not_zero_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("onnx_attention", monkeypatch, honest, attend=mean_of_nothing)


@pytest.mark.parametrize("edit", [given(qk_matmul_output_mode=0), given(softcap=0.0), given(scale=None)])
def test_a_wrong_attention_is_caught(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("onnx_attention", monkeypatch, edit)


def without_indices(spec: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return spec, {name: array for name, array in inputs.items() if name != "write_indices"}


def test_a_scatter_that_ignores_its_indices_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_caught("tensor_scatter", monkeypatch, without_indices)
