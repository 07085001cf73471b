"""`pageloom check`, `bench` and `info` on a CPU with kernels, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kernels_kit import LEVELS, needs_kernels

from pageloom.backends.cpu.tiers import COMPILED_TIERS

pytestmark = needs_kernels


def pageloom(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pageloom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check_runs_each_case_on_every_tier_of_every_instruction_set(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    ran = pageloom("check", "--backend", "cpu", "--quick", "--case", "paged/sink/decode", "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = json.loads(path.read_text())
    asked = {(case["level"], case["asked"]) for case in written["cases"]}
    assert asked == {(level, tier) for level in LEVELS for tier in ("", *COMPILED_TIERS)} | {("", "reference")}
    assert written["counts"] == {"passed": len(asked), "failed": 0, "skipped": 0}
    assert written["adapter"]["levels"] == list(LEVELS)
    for case in written["cases"]:
        assert case["tier"] == (case["asked"] or case["tier"])
        assert all(case["faster"].values())
    assert f"paged_attention  {LEVELS[-1]}" in ran.stdout


def test_check_takes_one_level_and_one_tier() -> None:
    check = ("check", "--backend", "cpu", "--quick", "--case", "onnx/softcap")
    ran = pageloom(*check, "--level", "scalar", "--tier", "flash")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of 1 cases passed" in ran.stdout
    for option, name in (("--level", "sse"), ("--tier", "warp")):
        ran = pageloom(*check, option, name)
        assert ran.returncode == 2
        assert f"{option[2:]} is {name!r}" in ran.stderr or f"there is no {option[2:]} {name!r}" in ran.stderr


def test_bench_measures_pairs_with_onnxruntime_beside_the_machines_limits(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    parts = ("call", "split")
    ran = pageloom("bench", "--backend", "cpu", "--part", *parts, "--repeats", "4", "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = json.loads(path.read_text())
    assert written["peer"].startswith("ONNX Runtime ")
    assert {result["shape"]["part"] for result in written["results"]} <= set(parts)
    for result in written["results"]:
        assert min(result["pairs"]["ours"]) > 0
        assert min(result["pairs"]["peer"]) > 0
        assert result["limit"] > 0
        assert result["spread"][0] <= result["ratio"] <= result["spread"][1]
    assert min(written["operations_per_second"].values()) > 1e8
