"""The references, their error budgets and the cases themselves, held against ONNX Runtime's CPU kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from pageloom.attention.cases.case import Case, compare
from pageloom.attention.cases.compare import compare_outputs
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.group_query.reference import group_query_attention
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import as_tensors
from tests.onnxruntime_oracle import refusal, run_case, run_node, run_paged_case


def runnable() -> Iterator[Case]:
    """The cases that are held against it: not those whose padding is NaN, which it multiplies with weights of 0."""
    for operator in ("group_query_attention", "onnx_attention", "tensor_scatter"):
        for case in all_cases(operator=operator):
            if "_nan/" not in case.name and "/long/" not in case.name and not _has_nan_padding(case):
                yield case


def _has_nan_padding(case: Case) -> bool:
    return "/external_" in case.name and bool(np.isnan(case.inputs()["K"]).any())


ACCEPTED = [case for case in runnable() if refusal(case) is None]
REFUSED = [case for case in runnable() if refusal(case) is not None]


@pytest.mark.parametrize("group", sorted({case.name.rsplit("/", 1)[0] for case in ACCEPTED}))
def test_onnxruntime_is_within_the_budget_of_every_case_that_it_runs(group: str) -> None:
    for case in ACCEPTED:
        if case.name.rsplit("/", 1)[0] == group:
            inputs = case.inputs()
            expected = case.expected(inputs)
            verdict = compare_outputs(expected, as_tensors(run_case(case, inputs, expected)))
            assert verdict.passed, f"{case.name}: {verdict}"


def test_what_onnxruntime_refuses_is_known() -> None:
    assert len(ACCEPTED) >= 300
    for case in REFUSED:
        with pytest.raises(Exception, match=refusal(case)):
            run_case(case, case.inputs(), case.expected())


def paged_cases() -> Iterator[Case]:
    """PagedAttention cases that are GroupQueryAttention of each sequence."""
    beyond = {"bfloat16", "qk_norm", "latent", "float8e4m3fn_cache", "device_lengths", "device_slots"}
    for case in all_cases(operator="paged_attention", quick=True):
        spec = case.spec
        one_kind = (spec.k_quant_type, spec.k_cache_dtype) == (spec.v_quant_type, spec.v_cache_dtype)
        unusual = (
            spec.rotary_offset
            or (spec.windowed and not spec.is_causal)
            or case.name.startswith(("paged/device_values", "paged/slot_mapping", "paged/large", "paged/mixed"))
        )
        if one_kind and not unusual and not case.needs & beyond:
            yield case


@pytest.mark.parametrize("group", sorted({case.name.split("/")[1] for case in paged_cases()}))
def test_paged_attention_is_group_query_attention_of_each_sequence(group: str) -> None:
    for case in paged_cases():
        if case.name.split("/")[1] == group:
            inputs = case.inputs()
            want = case.expected(inputs)["output"]
            verdict = compare_outputs({"output": want}, as_tensors({"output": run_paged_case(case, inputs)}))
            assert verdict.passed, f"{case.name}: {verdict}"


def test_enough_paged_cases_are_held_against_onnxruntime() -> None:
    held = list(paged_cases())
    assert len(held) >= 100
    features = frozenset().union(*(case.needs for case in held))
    assert {"softcap", "window", "sink", "rotary", "noncausal", "int8_cache", "int4_cache", "float32"} <= features


def test_the_cases_tell_onnxruntime_without_softcap_from_onnxruntime_with_it() -> None:
    case = next(case for case in ACCEPTED if case.name == "group_query/softcap/prompt")
    inputs = case.inputs()
    capless = dataclasses.replace(case, spec=dataclasses.replace(case.spec, softcap=0.0))
    assert not compare(case, run_case(capless, inputs, case.expected(inputs))).passed


@pytest.mark.parametrize(("bits", "low", "high"), [(8, -128, 127), (4, -8, 7)])
@pytest.mark.parametrize("scale", [0.37, 0.0713, 1.9])
def test_numbers_between_two_codes_are_rounded_as_onnxruntime_rounds_them(
    bits: int, low: int, high: int, scale: float
) -> None:
    rng = np.random.default_rng(bits)
    shape = (1, 128, 64)
    middles = ((rng.integers(low, high, shape) + 0.5) * scale).astype(np.float32)
    new = np.nextafter(middles, middles + rng.choice([-1, 0, 1], shape).astype(np.float32))
    kind = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits}
    past = np.zeros((1, 1, 128, 64 * bits // 8), np.int8 if bits == 8 else np.uint8)
    inputs = {
        "query": np.zeros(shape, np.float32), "key": new, "value": new, "past_key": past, "past_value": past,
        "seqlens_k": np.array([127], np.int32), "total_sequence_length": np.array(128, np.int32),
        "k_scale": np.array([scale], np.float32), "v_scale": np.array([scale], np.float32),
    }  # fmt: skip
    spec = GroupQueryAttentionSpec(num_heads=1, kv_num_heads=1, **kind)
    outputs = {"output": np.dtype(np.float32), "present_key": past.dtype, "present_value": past.dtype}
    theirs = run_node("group_query_attention", spec, inputs, outputs)
    assert np.array_equal(group_query_attention(spec, inputs).present_key, theirs["present_key"])
