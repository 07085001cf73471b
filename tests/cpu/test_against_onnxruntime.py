"""GroupQueryAttention, Attention and TensorScatter held against ONNX Runtime's CPU kernels, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from kernels_kit import LEVELS, needs_kernels, operator_of

from pageloom.attention.cases.case import Case
from pageloom.attention.cases.group_query_cases import QUANTIZED, group_query_case
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.group_query.reference import group_query_attention
from pageloom.attention.kv_quantization import unpack_int4
from pageloom.backends.cpu.operators import CpuOperators
from tests.onnxruntime_oracle import refusal, run_case, run_node

pytestmark = needs_kernels
OUTPUTS = {"output": np.dtype(np.float32)}
RELATIVE = {"float32": 2e-5, "float16": 4e-3}
"""Of the largest output; both round on the way."""


def comparable() -> Iterator[Case]:
    """Cases that both run: not those whose padding is NaN, which ONNX Runtime multiplies with weights of 0."""
    for operator in ("group_query_attention", "onnx_attention", "tensor_scatter"):
        for case in all_cases(operator=operator):
            exact = case.needs & {"float32", "float16"} or operator == "tensor_scatter"
            if exact and "bfloat16" not in case.name and "_nan/" not in case.name and refusal(case) is None:
                yield case


CASES = list(comparable())


@pytest.mark.parametrize("group", sorted({case.name.rsplit("/", 1)[0] for case in CASES}))
def test_outputs_are_those_of_onnxruntime_on_every_level(group: str) -> None:
    for case in CASES:
        if case.name.rsplit("/", 1)[0] == group:
            expected = case.expected()
            theirs = run_case(case, case.inputs(), expected)
            options: dict[str, Any] = {}
            if case.operator == "onnx_attention":
                options["outputs"] = [name for name in expected if name != "Y"]
            for level in LEVELS:
                ours = operator_of(CpuOperators(level=level), case)(**case.inputs(), **options)
                for name, want in expected.items():
                    bounds = np.frombuffer(want.budget.data).reshape(want.budget.info.shape)
                    assert_close(f"{case.name} {name} {level}", ours[name], theirs[name], specified=np.isfinite(bounds))


def assert_close(what: str, ours: np.ndarray, theirs: np.ndarray, specified: np.ndarray) -> None:
    """Rows that the contract says something of: codes equal, numbers within rounding of the largest."""
    ours, theirs = (array.reshape(*specified.shape, -1)[specified] for array in (ours, theirs))
    if ours.dtype.kind in "iu":
        assert np.array_equal(ours, theirs), what
        return
    finite = np.where(np.isfinite(theirs), np.abs(theirs), 0).astype(np.float64)
    bound = RELATIVE.get(str(ours.dtype), 0.0) * max(1.0, finite.max(initial=0.0))
    hidden = (theirs <= np.finfo(theirs.dtype).min) & np.isneginf(ours)
    with np.errstate(invalid="ignore"):
        off = np.abs(ours.astype(np.float64) - theirs) > bound
    assert not (off & ~hidden & ~(np.isnan(ours) & np.isnan(theirs))).any(), what


def test_enough_cases_and_features_are_held_against_onnxruntime() -> None:
    features = frozenset().union(*(case.needs for case in CASES))
    assert len(CASES) >= 250
    assert features >= {
        "bias", "causal", "float16", "int4_cache", "int8_cache", "mask", "noncausal", "nonpad", "qk_output",
        "query_seqlens", "rotary", "sink", "sliding_window_cache", "softcap", "window",
    }  # fmt: skip


def shapes() -> Iterator[Case]:
    """The prompts and decodes of ONNX Runtime's own tests of its quantised kernels, and longer ones."""
    kinds: list[tuple[str, dict[str, Any]]] = [*QUANTIZED, ("float32", {})]
    for name, kind in kinds:
        prompts = ((1, 4, (2, 1), 8), (2, 4, (4, 2), 16), (1, 8, (2, 1), 64), (1, 16, (4, 2), 32), (1, 128, (8, 2), 64),
                   (1, 300, (4, 2), 128))  # fmt: skip
        for batch, rows, heads, size in prompts:
            yield group_query_case(f"level/{name}/prompt_{rows}_{heads[0]}_{size}", rows=rows, totals=(rows,) * batch,
                                   capacity=rows, heads=heads, head_size=size, **kind)  # fmt: skip
        for total in (300, 2048, 8192):
            yield group_query_case(f"level/{name}/decode_{total}", rows=1, totals=(total,), capacity=total,
                                   heads=(4, 2), head_size=128, **kind)  # fmt: skip


@cache
def errors_of_onnxruntime() -> dict[str, tuple[Case, np.ndarray, np.ndarray]]:
    """Each shape with its float64 output, and how far ONNX Runtime's is from it."""
    errors = {}
    for case in shapes():
        inputs = case.inputs()
        ideal = group_query_attention(case.spec, inputs).output
        theirs = run_node(case.operator, case.spec, inputs, OUTPUTS | {
            f"present_{side}": inputs[f"past_{side}"].dtype for side in ("key", "value")
        })["output"]  # fmt: skip
        errors[case.name] = (case, ideal, theirs.reshape(ideal.shape) - ideal)
    return errors


@pytest.mark.parametrize("level", LEVELS)
def test_errors_are_as_small_as_those_of_onnxruntime(level: str) -> None:
    """Errors against float64: the root of the mean square in each shape, and the largest in the median of them."""
    operators = CpuOperators(level=level)
    largest, mean_square = {}, {}
    for name, (case, ideal, theirs) in errors_of_onnxruntime().items():
        ours = operator_of(operators, case)(**case.inputs())["output"].reshape(ideal.shape) - ideal
        largest[name] = np.abs(ours).max() / np.abs(theirs).max()
        mean_square[name] = np.sqrt((ours**2).mean() / (theirs**2).mean())
    assert np.median(list(largest.values())) < 1.3, largest
    assert max(largest.values()) < 3.0, largest
    assert max(mean_square.values()) < 1.75, mean_square


def test_k_and_v_stored_differently_give_what_each_alone_would() -> None:
    """ONNX Runtime refuses mixed caches: the same codes, widened to int8 where they are int4, are the oracle."""
    kind = {"k_element": "int8", "k_quant_type": "PER_TENSOR", "v_element": "int4", "v_quant_type": "PER_TENSOR",
            "k_cache_bit_width": 8, "v_cache_bit_width": 4}  # fmt: skip
    mixed = group_query_case("widened/mixed", rows=1, totals=(40, 9), capacity=48, **kind)
    inputs = mixed.inputs()
    wide = group_query_case("widened/int8", rows=1, totals=(40, 9), capacity=48, **QUANTIZED[0][1])
    given = dict(inputs) | {"past_value": unpack_int4(inputs["past_value"], 32)}
    theirs = run_case(wide, given, wide.expected(given))
    ours = CpuOperators().group_query_attention(mixed.spec)(**inputs)
    old = slice(0, 8)
    assert np.array_equal(ours["present_key"][:, :, old], theirs["present_key"][:, :, old])
    assert np.array_equal(unpack_int4(ours["present_value"], 32)[:, :, old], theirs["present_value"][:, :, old])
