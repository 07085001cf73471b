"""`pageloom tab`: the command as a user runs it, with a real Chromium, the built page and the real model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_batch import GoldenRun, check_answers, check_refusals, check_summary, run_golden

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(
    scope="module",
    params=[
        ("software", 16),
        pytest.param(("software", 48), marks=pytest.mark.slow),
        pytest.param(("hardware", 48), marks=pytest.mark.gpu),
    ],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GoldenRun:
    gpu, max_tokens = request.param
    return run_golden(tmp_path_factory.mktemp("golden"), max_tokens, "tab", "--gpu", gpu)


def test_the_golden_prompts_in_one_batch_give_their_golden_answers(golden: GoldenRun) -> None:
    check_answers(golden)


def test_a_bad_line_has_an_error_row_and_the_others_are_served(golden: GoldenRun) -> None:
    check_refusals(golden)


def test_the_summary_has_the_rate_the_steps_the_pages_and_the_adapter(golden: GoldenRun) -> None:
    check_summary(golden)


def test_a_file_that_is_no_model_ends_with_its_reason_and_no_traceback(tmp_path: Path) -> None:
    prompts, model = tmp_path / "prompts.jsonl", tmp_path / "bad.gguf"
    prompts.write_text('{"prompt": "a"}')
    model.write_bytes(b"this is no model file" * 100)
    command = [sys.executable, "-m", "pageloom", "tab", "--gpu", "software", "--model", model, "--prompts", prompts]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "GGUF" in ran.stderr
    assert "Traceback" not in ran.stderr
