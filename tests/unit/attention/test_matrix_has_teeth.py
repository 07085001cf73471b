"""The quick cases catch every known way of being wrong, and pass what is right in finite precision."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from mutants import MUTANTS, Mutant

from pageloom.attention.cases.case import Case, Inputs
from pageloom.attention.cases.compare import Expected, Verdict, compare_outputs
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_tensors
from pageloom.attention.numerics.softmax import Attended, attend
from pageloom.attention.paged import reference
from pageloom.errors import InvalidArgument

CASES = list(all_cases(operator="paged_attention", quick=True))


@cache
def prepared(name: str) -> tuple[Case, Inputs, dict[str, Expected]]:
    """A case with its inputs and what the honest reference expects of it."""
    case = next(case for case in CASES if case.name == name)
    inputs = case.inputs()
    return case, inputs, case.expected(inputs)


def verdict_of(result: reference.PagedAttentionResult, inputs: Inputs, expected: dict[str, Expected]) -> Verdict:
    """The verdict on a result that was rounded as an implementation rounds it."""
    with np.errstate(over="ignore"):
        outputs = {"output": result.output.astype(inputs["query"].dtype), "key_cache_out": result.key_cache}
    if result.value_cache is not None:
        outputs["value_cache_out"] = result.value_cache
    outputs["log_sum_exp"] = result.log_sum_exp.astype(np.float32)
    return compare_outputs(expected, as_tensors(outputs))


def caught_by(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The first quick case that `mutant` fails, or None."""
    for candidate in CASES:
        if mutant.among and mutant.among not in candidate.needs and mutant.among not in candidate.name:
            continue
        case, inputs, expected = prepared(candidate.name)
        try:
            result = mutant.run(monkeypatch, case.spec, inputs)
        except (FloatingPointError, InvalidArgument):
            return case.name
        if not verdict_of(result, inputs, expected).passed:
            return case.name
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_wrong_implementation_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_by(mutant, monkeypatch) is not None


def tiled_attend(query: Any, keys: Any, values: Any, visible: Any, *, operands: Any, **options: Any) -> Attended:
    """Attention as a kernel computes it: float32, an online softmax over tiles of 32 keys; queries and weights are
    rounded to `operands` before they are multiplied."""
    exact = attend(query, keys, values, visible, **options)
    single = np.float32
    scaled = query.astype(operands).astype(single) * single(options["scale"])
    keys, values = np.nan_to_num(keys).astype(single), np.nan_to_num(values).astype(single)
    rows = np.broadcast_shapes(query.shape[:-1], visible.shape[:-1])
    top, total = np.full(rows, -np.inf, single), np.zeros(rows, single)
    sums = np.zeros((*rows, values.shape[-1]), single)
    softcap, sink = single(options["softcap"]), options["sink"]
    if sink is not None:
        top, total = np.broadcast_to(sink, rows).astype(single), np.ones(rows, single)
    for start in range(0, keys.shape[-2], 32):
        tile = slice(start, start + 32)
        logits = scaled @ keys[..., tile, :].swapaxes(-1, -2)
        if softcap > 0:
            logits = softcap * np.tanh(logits / softcap)
        logits = np.where(visible[..., tile], logits, single(-np.inf))
        raised = np.maximum(top, logits.max(axis=-1))
        base = np.where(np.isneginf(raised), single(0), raised)
        weights, rescale = np.exp(logits - base[..., None]), np.exp(top - base)
        total = total * rescale + weights.sum(axis=-1)
        sums = sums * rescale[..., None] + weights.astype(operands).astype(single) @ values[..., tile, :]
        top = raised
    exact.output[:] = np.divide(sums, total[..., None], out=np.zeros_like(sums), where=total[..., None] > 0)
    with np.errstate(divide="ignore"):
        exact.log_sum_exp[:] = np.log(total) + np.where(np.isneginf(top), single(0), top)
    return exact


@pytest.mark.parametrize("group", sorted({case.name.split("/")[1] for case in CASES}))
def test_an_implementation_in_float32_passes(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for candidate in CASES:
        if candidate.name.split("/")[1] == group:
            case, inputs, expected = prepared(candidate.name)
            kernel = partial(tiled_attend, operands=inputs["query"].dtype)
            mutant = Mutant("float32", patches=lambda kernel=kernel: {"attend": kernel})
            verdict = verdict_of(mutant.run(monkeypatch, case.spec, inputs), inputs, expected)
            assert verdict.passed, f"{case.name}: {verdict}"
