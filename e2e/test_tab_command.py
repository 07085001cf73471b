"""`pageloom tab`: the command as a user runs it, with a real Chromium, the built page and the real model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_batch import MODEL, check_rows, write_prompts


def run_tab(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pageloom", "tab", "--gpu", "software", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "max_tokens",
    [
        pytest.param(16, marks=pytest.mark.timeout(300)),
        pytest.param(48, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_the_golden_prompts_in_one_batch_give_their_golden_answers(tmp_path: Path, max_tokens: int) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "rows.jsonl"
    write_prompts(prompts, max_tokens)
    ran = run_tab("--model", MODEL, "--prompts", prompts, "--out", out)
    assert ran.returncode == 0, ran.stderr
    check_rows([json.loads(line) for line in out.read_text().splitlines()], max_tokens)
    assert "3 of 3 rows" in ran.stderr
    assert "steps" in ran.stderr
    assert "adapter: " in ran.stderr


def test_a_bad_line_has_an_error_row_and_the_others_are_served(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt_ids": [504]}, {"prompt": "a", "temperature": 7}, {"prompt_ids": [999_999]}, {"prompt_ids": [504]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = run_tab("--model", MODEL, "--prompts", prompts, "--max-tokens", "2")
    assert ran.returncode == 1, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[1]["error"]["param"] == "temperature"
    assert rows[2]["error"]["code"] == "invalid_argument"
    assert rows[0]["output_ids"] == rows[3]["output_ids"] != []


def test_a_file_that_is_no_model_ends_with_its_reason_and_no_traceback(tmp_path: Path) -> None:
    prompts, model = tmp_path / "prompts.jsonl", tmp_path / "bad.gguf"
    prompts.write_text('{"prompt": "a"}')
    model.write_bytes(b"this is no model file" * 100)
    ran = run_tab("--model", model, "--prompts", prompts)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "GGUF" in ran.stderr
    assert "Traceback" not in ran.stderr
