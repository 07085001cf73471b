"""The golden prompts, and two lines that are refused, run by a batch command as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CASES = json.loads((ROOT / "tests" / "golden" / "smollm2_greedy.json").read_text())["cases"]
REFUSED = [{"prompt": "Too hot", "temperature": 7}, {"prompt_ids": [999_999]}]
SAFE_MARGIN = 0.02
"""Between the best and the second-best logit; below it a correct engine's rounding may choose the other token."""


@dataclass(frozen=True)
class GoldenRun:
    """What the command left: its exit code, what it said on standard error, and the rows of its output file."""

    max_tokens: int
    exit_code: int
    summary: str
    rows: list[dict[str, Any]]


def run_golden(folder: Path, max_tokens: int, *command: str, environment: Mapping[str, str] | None = None) -> GoldenRun:
    """Run `pageloom COMMAND` on the prompts, as text that is not to be put through the chat template."""
    prompts, out = folder / "prompts.jsonl", folder / "rows.jsonl"
    golden = [{"prompt": case["prompt"], "raw": True, "temperature": 0} for case in CASES]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in [*golden, *REFUSED]))
    files = ["--model", str(MODEL), "--prompts", str(prompts), "--out", str(out), "--max-tokens", str(max_tokens)]
    ran = subprocess.run(
        [sys.executable, "-m", "pageloom", *command, *files],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )
    assert out.is_file(), ran.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return GoldenRun(max_tokens, ran.returncode, ran.stderr, rows)


def check_answers(run: GoldenRun) -> None:
    assert len(run.rows) == len(CASES) + len(REFUSED), run.summary
    for row, case in zip(run.rows, CASES, strict=False):
        assert "error" not in row, row
        assert row["prompt_ids"] == case["prompt_ids"], case["name"]
        wanted = case["output_ids"][: run.max_tokens]
        safe = sum(1 for _ in takewhile(lambda margin: margin > SAFE_MARGIN, case["margins"][: run.max_tokens]))
        assert row["output_ids"][:safe] == wanted[:safe], case["name"]
        if safe == len(wanted):
            assert row["finish_reason"] == ("stop" if len(wanted) < run.max_tokens else "length")
            assert row["usage"]["completion_tokens"] == len(wanted)


def check_refusals(run: GoldenRun) -> None:
    assert run.exit_code == 1
    assert [row["index"] for row in run.rows] == list(range(len(CASES) + len(REFUSED)))
    too_hot, no_token = (row["error"] for row in run.rows[len(CASES) :])
    assert (too_hot["code"], too_hot["param"]) == ("invalid_argument", "temperature")
    assert no_token["code"] == "invalid_argument"
    assert "999999" in no_token["message"]


def check_summary(run: GoldenRun) -> None:
    for said in (f"{len(CASES)} of ", "tokens/s", "steps", "pages at the peak", "adapter: "):
        assert said in run.summary
