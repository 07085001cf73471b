"""The golden prompts as a batch for the command line, and what its rows have to be."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CASES = json.loads((ROOT / "tests" / "golden" / "smollm2_greedy.json").read_text())["cases"]
SAFE_MARGIN = 0.02
"""Between the best and the second-best logit; below it a correct engine's rounding may choose the other token."""


def write_prompts(path: Path, max_tokens: int) -> None:
    """One line a golden prompt, as text that is not to be put through the chat template."""
    lines = [{"prompt": case["prompt"], "raw": True, "temperature": 0, "max_tokens": max_tokens} for case in CASES]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def check_rows(rows: list[dict[str, Any]], max_tokens: int) -> None:
    assert [row["index"] for row in rows] == list(range(len(CASES)))
    for row, case in zip(rows, CASES, strict=True):
        assert "error" not in row, row
        assert row["prompt_ids"] == case["prompt_ids"], case["name"]
        safe = sum(1 for _ in takewhile(lambda margin: margin > SAFE_MARGIN, case["margins"][:max_tokens]))
        assert row["output_ids"][:safe] == case["output_ids"][:safe], case["name"]
        if safe == len(case["output_ids"][:max_tokens]):
            assert row["finish_reason"] == ("stop" if len(case["output_ids"]) < max_tokens else "length")
            assert row["usage"]["completion_tokens"] == safe
