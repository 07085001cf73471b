"""The quick cases of the conformance matrix on every instruction set, by the kernels' own choice and on each tier.

The whole matrix is run by `pageloom check --backend cpu`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from kernels_kit import LEVELS, needs_kernels

from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.vectors import Vector
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.tiers import COMPILED_TIERS
from pageloom.conformance.report import CaseReport
from pageloom.conformance.run_cpu import CpuCaseRunner

pytestmark = needs_kernels
OPERATORS = ("paged_attention", "group_query_attention", "onnx_attention", "tensor_scatter")
KINDS_WITHOUT_KERNELS = ("bfloat16", "float64", "float8e4m3fn")
"""Parts of the names of cases that the reference computes."""


@cache
def vectors(operator: str) -> list[Vector]:
    return [case.vector() for case in all_cases(operator=operator, quick=True)]  # type: ignore[arg-type]


def run(operator: str, level: str, tier: str | None, step: int = 1) -> list[CaseReport]:
    runner = CpuCaseRunner(CpuOperators(level=level), tier)
    return [runner.run(vector) for vector in vectors(operator)[::step]]


def failures(reports: list[CaseReport]) -> list[tuple[str, str]]:
    return [(report.name, report.detail) for report in reports if report.outcome == "failed"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_case_passes_as_the_kernels_choose(operator: str, level: str) -> None:
    reports = run(operator, level, None)
    assert failures(reports) == []
    for report in reports:
        computed = not any(kind in report.name for kind in KINDS_WITHOUT_KERNELS)
        assert report.outcome == "passed"
        assert (report.tier == "reference") == (not computed and operator != "tensor_scatter"), report
        assert len(report.faster) == [*COMPILED_TIERS, "reference"].index(report.tier)
        assert all(report.faster.values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tier", COMPILED_TIERS)
@pytest.mark.parametrize("operator", OPERATORS[:3])
def test_cases_pass_on_each_tier_or_are_skipped_in_words(operator: str, tier: str, level: str) -> None:
    reports = run(operator, level, tier, step=3)
    assert failures(reports) == []
    outcomes = Counter(report.outcome for report in reports)
    assert outcomes["passed"] > 0.6 * len(reports)
    for report in reports:
        if report.outcome == "passed":
            assert (report.tier, report.level) == (tier, level)
        else:
            assert report.detail.startswith(f"tier {tier} cannot run this call: ")


def test_each_tier_is_chosen_for_some_case_of_the_best_level() -> None:
    reports = [report for operator in OPERATORS for report in run(operator, LEVELS[-1], None, step=2)]
    assert {report.tier for report in reports} >= {"flash", "naive", "reference"}
