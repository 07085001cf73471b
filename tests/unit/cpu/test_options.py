"""Where the options of the CPU backend come from."""

from __future__ import annotations

import os

import pytest

from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.options import ENVIRONMENT, CpuOptions, usable_cores

EVERYTHING = {
    "PAGELOOM_CPU_THREADS": "3",
    "PAGELOOM_CPU_PIN": "1",
    "PAGELOOM_CPU_LEVEL": "scalar",
    "PAGELOOM_CPU_TIER": "naive",
    "PAGELOOM_CPU_APPROXIMATE": "int16",
}


def test_an_option_that_is_not_given_comes_from_its_variable() -> None:
    assert CpuOptions.of(environment=EVERYTHING) == CpuOptions(
        threads=3, pin=True, level="scalar", tier="naive", approximate="int16"
    )
    assert set(EVERYTHING) == set(ENVIRONMENT.values())


def test_an_option_that_is_given_stands_before_its_variable() -> None:
    given = CpuOptions.of(threads=1, pin=False, level="avx2", tier="flash", approximate="int8-query",
                          environment=EVERYTHING)  # fmt: skip
    assert given == CpuOptions(threads=1, pin=False, level="avx2", tier="flash", approximate="int8-query")


def test_without_either_there_is_a_thread_for_each_core_and_nothing_is_forced_or_approximate() -> None:
    options = CpuOptions.of(environment={"PAGELOOM_CPU_THREADS": ""})
    assert options == CpuOptions()
    assert options.num_threads == usable_cores() == len(os.sched_getaffinity(0))


def test_the_operators_read_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGELOOM_CPU_TIER", "reference")
    case = next(case for case in all_cases(quick=True) if case.name == "paged/sink/decode")
    explained = CpuOperators().paged_attention(case.spec).explain(**case.inputs())
    assert explained.tier == "reference"
    assert len(explained.reasons) == 3
