"""Where nothing is compiled the reference answers, and says that it does."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pageloom.attention.cases.case import compare
from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.conformance.run_cpu import CpuCaseRunner
from pageloom.errors import NotSupported

CASES = {case.name: case for case in all_cases(quick=True)}
MISSING = "the compiled kernels are not installed"


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> CpuOperators:
    """The operators of a machine without the extension."""
    monkeypatch.setitem(sys.modules, "pageloom_cpu", None)
    return CpuOperators()


def test_the_reference_answers_and_each_faster_tier_has_its_reason(operators: CpuOperators) -> None:
    case = CASES["paged/sink/decode"]
    operator = operators.paged_attention(case.spec)
    explained = operator.explain(**case.inputs())
    assert explained.tier == "reference"
    assert list(explained.reasons) == ["flash-decoding", "flash", "naive"]
    assert all(MISSING in reason and "pip install" in reason for reason in explained.reasons.values())
    assert compare(case, operator(**case.inputs())).passed


def test_a_tier_or_an_instruction_set_of_the_kernels_is_refused(operators: CpuOperators) -> None:
    case = CASES["paged/sink/decode"]
    with pytest.raises(NotSupported, match=f"tier flash cannot run this call: {MISSING}"):
        operators.paged_attention(case.spec)(tier="flash", **case.inputs())
    with pytest.raises(NotSupported, match=f"level scalar cannot be used: {MISSING}"):
        CpuOperators(level="scalar")
    assert operators.level is None


@pytest.mark.parametrize("operator", ["paged_attention", "group_query_attention", "onnx_attention", "tensor_scatter"])
def test_the_reference_passes_the_cases_of_every_operator(operators: CpuOperators, operator: str) -> None:
    runner = CpuCaseRunner(operators)
    for case in [case for case in CASES.values() if case.operator == operator][::5]:
        report = runner.run(case.vector())
        assert (report.outcome, report.tier) == ("passed", "reference"), report


def test_numbers_that_are_none_go_through_the_reference(operators: CpuOperators) -> None:
    case = CASES["paged/sink/decode"]
    inputs = case.inputs()
    inputs["query"][0, 0] = np.nan
    output = operators.paged_attention(case.spec)(**inputs)["output"]
    head_size = inputs["key_cache"].shape[3]
    assert np.isnan(output[0, :head_size]).all()
    assert np.isfinite(output[0, head_size:]).all()


def test_info_and_check_say_that_nothing_is_compiled() -> None:
    hide = "import sys; sys.modules['pageloom_cpu'] = None; from pageloom.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", hide, "check", "--backend", "cpu", "--quick", "--case", "paged/sink/decode"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "1 of 1 cases passed" in ran.stdout
    assert "reference 1" in ran.stdout
    assert "no compiled kernels" in ran.stdout
