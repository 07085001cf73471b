"""The comparison that every backend's verdict comes from."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pageloom.attention.cases.case import expected_cache, expected_numbers
from pageloom.attention.cases.compare import Expected, Verdict, compare_outputs
from pageloom.attention.numerics.dtypes import as_tensor

WANT = np.array([[1.0, 2.0], [3.0, -np.inf]])


def verdict(got: Any, want: Any = WANT, budget: Any = 0.25, **more: Any) -> Verdict:
    expected = expected_numbers(np.asarray(want, np.float64), np.asarray(budget), **more)
    return compare_outputs({"output": expected}, {"output": as_tensor(np.asarray(got))})


def test_within_the_budget_passes_and_reports_the_worst_element() -> None:
    result = verdict(np.array([[1.0, 2.125], [3.0625, -np.inf]], np.float32))
    assert (result.passed, result.worst_error, result.budget, result.share) == (True, 0.125, 0.25, 0.5)
    assert result.where.startswith("output[0, 1] is 2.125; 2.0 within 0.25")


def test_beyond_the_budget_fails() -> None:
    assert not verdict(np.array([[1.0, 2.3], [3.0, -np.inf]], np.float32)).passed


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_fails_where_one_is_expected(wrong: float) -> None:
    result = verdict(np.array([[1.0, wrong], [3.0, -np.inf]], np.float32), budget=1e30)
    assert (result.passed, result.worst_error) == (False, math.inf)


def test_minus_infinity_may_be_the_lowest_number_but_no_other() -> None:
    assert verdict(np.array([[1, 2], [3, np.finfo(np.float32).min]], np.float32)).passed
    assert verdict(np.array([[1, 2], [3, -65504]], np.float16)).passed
    assert not verdict(np.array([[1, 2], [3, -65504]], np.float32), budget=1e9).passed
    assert not verdict(np.array([[1, 2], [3, np.nan]], np.float32)).passed


def test_each_row_has_its_own_budget() -> None:
    got = np.array([[1.0, 2.2], [3.2, -np.inf]], np.float32)
    assert verdict(got, budget=[0.3, 0.3]).passed
    failed = verdict(got, budget=[0.3, 0.1])
    assert not failed.passed
    assert failed.where.startswith("output[1, 0]")


def test_a_row_of_infinite_budget_may_hold_anything() -> None:
    assert verdict(np.array([[1.0, 2.0], [np.nan, 7.0]], np.float32), budget=[0.1, np.inf]).passed


def test_a_missing_output_fails_unless_it_is_optional() -> None:
    must, may = expected_numbers(WANT, np.ones(())), expected_numbers(WANT, np.ones(()), optional=True)
    assert not compare_outputs({"output": must}, {}).passed
    assert compare_outputs({"log_sum_exp": may}, {}).passed


def test_another_number_of_elements_fails() -> None:
    result = verdict(np.zeros((2, 3), np.float32))
    assert (result.passed, result.where) == (False, "output has shape (2, 3); (2, 2) is expected")


def cache_verdict(want: np.ndarray, got: np.ndarray) -> bool:
    expected: dict[str, Expected] = {"key_cache_out": expected_cache(want, np.zeros(()))}
    return compare_outputs(expected, {"key_cache_out": as_tensor(got)}).passed


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_poison_must_be_left_as_it_was(dtype: Any) -> None:
    want = np.array([[np.nan, 1.0]]).astype(dtype)
    assert cache_verdict(want, want.copy())
    assert not cache_verdict(want, np.array([[0.0, 1.0]]).astype(dtype))
    assert not cache_verdict(want, np.array([[np.nan, np.nan]]).astype(dtype))


def test_another_nan_is_another_value() -> None:
    want = np.array([[0x7E00, 0x3C00]], np.uint16).view(np.float16)
    other = np.array([[0x7E01, 0x3C00]], np.uint16).view(np.float16)
    assert not cache_verdict(want, other)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_code_that_is_off_by_one_fails(dtype: Any) -> None:
    assert not cache_verdict(np.array([[1, 2]], dtype), np.array([[1, 3]], dtype))


def test_outputs_without_elements_pass() -> None:
    assert verdict(np.zeros((0, 8), np.float16), want=np.zeros((0, 8)), budget=np.zeros(0)).passed
