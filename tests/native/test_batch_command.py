"""`pageloom batch`: the command as a user runs it, on each software driver of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pageloom.backends.webgpu.native_drivers import browser_folders, find_swiftshader
from tests.golden_batch import MODEL, check_rows, write_prompts


@pytest.fixture(params=["swiftshader", "lavapipe"])
def only_driver(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment in which one software driver is the only one."""
    if request.param == "swiftshader":
        manifest = find_swiftshader(browser_folders())
    else:
        manifest = next(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"), None)
    if manifest is None:
        pytest.skip(f"{request.param} is not installed")
    return {**os.environ, "VK_DRIVER_FILES": str(manifest)}


def run_batch(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pageloom", "batch", "--backend", "webgpu", "--model", MODEL, *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    "max_tokens",
    [
        pytest.param(16, marks=pytest.mark.timeout(300)),
        pytest.param(48, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_the_golden_prompts_in_one_batch_give_their_golden_answers(
    only_driver: dict[str, str], tmp_path: Path, max_tokens: int
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "rows.jsonl"
    write_prompts(prompts, max_tokens)
    ran = run_batch(only_driver, "--prompts", prompts, "--out", out)
    assert ran.returncode == 0, ran.stderr
    check_rows([json.loads(line) for line in out.read_text().splitlines()], max_tokens)
    assert "3 of 3 rows" in ran.stderr


def test_a_bad_line_has_an_error_row_and_the_others_are_served(only_driver: dict[str, str], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt_ids": [504]}, {"prompt": "a", "temperature": 7}, {"prompt_ids": [999_999]}, {"prompt_ids": [504]}]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = run_batch(only_driver, "--prompts", prompts, "--max-tokens", "2")
    assert ran.returncode == 1, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[1]["error"]["param"] == "temperature"
    assert rows[2]["error"]["code"] == "invalid_argument"
    assert rows[0]["output_ids"] == rows[3]["output_ids"] != []
