"""The instruction set is the best there is unless one is asked for, and is told with the reasons against others."""

from __future__ import annotations

import pytest
from kernels_kit import LEVELS, needs_kernels, operator_of

from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cpu.facts import cpu_facts
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.errors import NotSupported

pytestmark = needs_kernels
CASE = next(case for case in all_cases(quick=True) if case.name == "paged/sink/decode")


def test_the_best_is_taken_and_what_the_machine_lacks_is_told() -> None:
    explained = operator_of(CpuOperators(), CASE).explain(**CASE.inputs())
    assert explained.level == CpuOperators().level == LEVELS[-1]
    assert dict(explained.level_reasons) == dict(cpu_facts().unavailable)


@pytest.mark.parametrize("level", LEVELS)
def test_one_that_is_asked_for_is_taken_and_stands_before_the_faster_ones(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGELOOM_CPU_LEVEL", level)
    explained = operator_of(CpuOperators(), CASE).explain(**CASE.inputs())
    assert explained.level == level
    for faster in LEVELS[LEVELS.index(level) + 1 :]:
        assert explained.level_reasons[faster] == f"level {level} was asked for"


def test_one_that_the_machine_lacks_is_refused_with_the_kernels_reason() -> None:
    for level, reason in cpu_facts().unavailable.items():
        with pytest.raises(NotSupported) as caught:
            CpuOperators(level=level)
        assert reason in caught.value.message


def test_the_reference_has_none() -> None:
    explained = operator_of(CpuOperators(), CASE).explain(tier="reference", **CASE.inputs())
    assert (explained.tier, explained.level, dict(explained.level_reasons)) == ("reference", None, {})
