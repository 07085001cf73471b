"""The conformance matrix as a whole."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from pageloom.attention.cases.compare import Expected
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_array

ALL = list(all_cases())
QUICK = list(all_cases(quick=True))
COUNTS = {"paged_attention": 602, "group_query_attention": 309, "onnx_attention": 215, "tensor_scatter": 10}
QUICK_COUNTS = {"paged_attention": 180, "group_query_attention": 86, "onnx_attention": 86, "tensor_scatter": 6}


def test_the_matrix_is_as_large_as_it_says() -> None:
    assert Counter(case.operator for case in ALL) == COUNTS
    assert Counter(case.operator for case in QUICK) == QUICK_COUNTS


def test_names_are_unique() -> None:
    assert len({case.name for case in ALL}) == len(ALL)


def test_every_feature_is_asked_for_by_a_quick_case() -> None:
    assert frozenset().union(*(case.needs for case in QUICK)) >= frozenset().union(*(case.needs for case in ALL))


def test_the_known_faults_are_guarded_by_quick_cases() -> None:
    assert len({case.guards for case in QUICK if case.guards}) >= 25


@pytest.mark.parametrize("operator", sorted(COUNTS))
def test_a_case_is_made_the_same_each_time(operator: str) -> None:
    for case in [case for case in QUICK if case.operator == operator][::9]:
        first, second = case.inputs(), case.inputs()
        assert {name: array.tobytes() for name, array in first.items()} == {
            name: array.tobytes() for name, array in second.items()
        }


@cache
def expected(name: str) -> dict[str, Expected]:
    return next(case for case in QUICK if case.name == name).expected()


def test_the_expectations_are_numbers_with_budgets() -> None:
    for case in QUICK:
        for name, want in expected(case.name).items():
            budget = as_array(want.budget)
            assert budget.shape == want.values.info.shape[:-1], (case.name, name)
            assert (budget >= 0).all(), (case.name, name)
            if want.values.info.dtype == "float64":
                assert not np.isnan(as_array(want.values)).any(), (case.name, name)


def test_budgets_are_small_beside_the_outputs() -> None:
    shares = []
    for case in QUICK:
        want = next(iter(expected(case.name).values()))
        budget = as_array(want.budget)
        largest = np.abs(as_array(want.values).astype(np.float64)).max(initial=0.0)
        if largest > 0:
            shares.append((budget[np.isfinite(budget)].max(initial=0.0) / largest, case.name))
    assert sorted(shares)[len(shares) // 2][0] < 0.002
    # bfloat16 rounds Q and K eight times as coarsely as float16.
    limits = [(name, share, 0.6 if "bfloat16" in name else 0.15) for share, name in shares]
    assert [name for name, share, limit in limits if share > limit and "very_negative" not in name] == []
