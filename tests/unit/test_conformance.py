"""`pageloom check` without a device: which cases it picks, what it makes of reports, and the files that a tab gets."""

from __future__ import annotations

import io
import json
import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pageloom.attention.cases import paged_case
from pageloom.attention.cases.case import Case
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_array, as_tensor
from pageloom.attention.vectors import read_vector
from pageloom.cli import build_parser, main
from pageloom.commands import check_native
from pageloom.commands.check import choose_cases
from pageloom.commands.check_summary import print_summary, report_lines
from pageloom.conformance.members import members
from pageloom.conformance.report import CaseReport, counts, summarize
from pageloom.conformance.vector_files import choose, write_published, write_vectors
from pageloom.errors import InvalidArgument, NotSupported

ADAPTER = {
    "vendor": "v", "architecture": "a", "description": "Some GPU", "adapter_class": "gpu", "f16": True,
    "home": "native",
}  # fmt: skip
CASES = {case.name: case for case in all_cases(operator="paged_attention", quick=True)}
RAGGED = "paged/all_together/ragged"


def options(*arguments: str) -> Namespace:
    return build_parser().parse_args(["check", *arguments])


def passed(name: str, error: float, budget: float, tier: str = "direct", **fields: object) -> CaseReport:
    return CaseReport(
        name, "paged_attention", "passed", tier=tier, worst_error=error, budget=budget, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_options_pick_the_cases() -> None:
    every = choose_cases(options())
    assert {case.operator for case in every} == {"paged_attention"}
    assert len(every) > len(choose_cases(options("--quick"))) == len(CASES)
    few = choose_cases(options("--quick", "--case", "paged/int4/*/decode"))
    assert [case.name for case in few] == ["paged/int4/per_tensor/decode", "paged/int4/per_channel/decode"]


def test_a_pattern_that_no_case_matches_and_an_operator_that_is_not_there_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="no case of the quick ones matches 'nothing'"):
        choose_cases(options("--quick", "--case", "nothing"))
    with pytest.raises(NotSupported, match="onnx_attention is not on the backend webgpu"):
        choose_cases(options("--operator", "onnx_attention"))


@pytest.mark.parametrize(("outcome", "code"), [("passed", 0), ("skipped", 0), ("failed", 1)])
def test_the_exit_code_says_whether_a_case_failed_and_the_file_has_them_all(
    outcome: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_nothing(
        cases: Sequence[Case], options: Namespace, on_report: Callable[[CaseReport], None]
    ) -> dict[str, object]:
        for case in cases:
            on_report(CaseReport(case.name, case.operator, outcome, worst_error=math.inf))  # type: ignore[arg-type]
        return ADAPTER

    monkeypatch.setattr(check_native, "check_natively", run_nothing)
    path = tmp_path / "report.json"
    assert main(["check", "--quick", "--case", "paged/sink/*", "--json", str(path)]) == code
    written = json.loads(path.read_text())
    assert written["counts"][outcome] == len(written["cases"]) == 4
    assert written["cases"][0] == {
        "name": "paged/sink/decode", "operator": "paged_attention", "outcome": outcome, "tier": "", "faster": {},
        "worst_error": None, "budget": 0.0, "where": "", "alone": "", "detail": "", "seconds": 0.0, "feature": "sink",
        "share": None, "asked": "", "level": "",
    }  # fmt: skip


def test_runs_on_tiers_that_were_asked_for_are_counted_by_operator_level_and_tier() -> None:
    reports = [
        passed("paged/sink/decode", 1.0, 2.0, asked="flash", level="avx2"),
        replace(passed("paged/sink/prefill", 0.0, 2.0, asked="flash", level="avx2"), outcome="skipped", tier=""),
        passed("paged/sink/decode", 1.0, 2.0, level="avx2"),
    ]
    printed = io.StringIO()
    print_summary(printed, reports, {"description": "Some CPU", "adapter_class": "cpu", "home": "native"})
    table = [line.split() for line in printed.getvalue().splitlines()]
    assert ["paged_attention", "avx2", "flash", "1", "1"] in table
    assert ["paged_attention", "avx2", "its", "own", "choice", "1"] in table
    assert printed.getvalue().splitlines()[-1] == "adapter: Some CPU"


def test_a_report_that_cannot_be_written_is_refused_before_a_case_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(check_native, "check_natively")
    path = tmp_path / "no" / "such" / "folder.json"
    assert main(["check", "--quick", "--case", "paged/sink/*", "--json", str(path)]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_report_is_the_same_after_a_trip_as_json() -> None:
    for report in (
        passed("paged/sink/decode", 1e-4, 1e-3, faster={"fast": "no subgroups"}, alone="same bits"),
        CaseReport("paged/sink/decode", "paged_attention", "failed", worst_error=math.inf, detail="output is missing"),
    ):
        assert CaseReport.from_fields(json.loads(json.dumps(report.to_fields(), allow_nan=False))) == report


def test_the_summary_has_a_line_for_each_feature_with_the_worst_share_of_a_budget() -> None:
    reports = [
        passed("paged/sink/decode", 1.0, 4.0),
        passed("paged/sink/prefill", 3.0, 4.0, tier="gather", alone="same bits"),
        CaseReport("paged/int4/decode", "paged_attention", "failed", tier="direct", worst_error=9.0, budget=1.0),
        CaseReport("paged/bfloat16/decode", "paged_attention", "skipped", detail="no bfloat16"),
    ]
    assert counts(reports) == {"passed": 2, "failed": 1, "skipped": 1}
    sink = summarize(reports)[0]
    assert (sink.feature, sink.passed, sink.worst_share, sink.tiers) == ("sink", 2, 0.75, {"direct": 1, "gather": 1})
    stream = io.StringIO()
    print_summary(stream, reports, ADAPTER)
    lines = stream.getvalue().splitlines()
    assert lines[1].split() == ["sink", "2", "75.0", "%", "direct", "1,", "gather", "1"]
    assert lines[2].split() == ["int4", "0", "1", "direct", "1"]
    assert lines[3].split() == ["bfloat16", "0", "1"]
    assert lines[5:] == [
        "2 of 4 cases passed, 1 failed, 1 skipped",
        "1 of 1 batches give each member the bits it gets alone",
        "adapter: Some GPU (gpu, native f16), native",
    ]


def test_a_case_is_told_with_its_error_its_tier_and_why_nothing_faster_ran() -> None:
    report = passed("paged/sink/decode", 2.5e-4, 1e-3, faster={"fast": "no subgroups"}, alone="within budget")
    assert report_lines(report) == [
        "passed  paged/sink/decode, by direct, error 0.00025, 25.0 % of its budget, alone: within budget",
        "        not by fast: no subgroups",
    ]


def test_each_member_of_a_batch_gets_its_own_rows_of_every_input() -> None:
    case = CASES[RAGGED]
    vector = case.vector()
    found = list(members(vector, most=100))
    wanted = [(tokens, inputs) for tokens, inputs in paged_case.members(case.inputs()) if tokens.stop > tokens.start]
    assert len(found) == len(wanted) > 1
    for member, (tokens, inputs) in zip(found, wanted, strict=True):
        assert (member.start, member.stop) == (tokens.start, tokens.stop)
        assert member.inputs.keys() == inputs.keys()
        for name, array in inputs.items():
            got = as_array(member.inputs[name])
            assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
        output = np.arange(math.prod(vector.expected["output"].values.info.shape), dtype=np.float32)
        output = output.reshape(vector.expected["output"].values.info.shape)
        assert np.array_equal(as_array(member.rows({"output": as_tensor(output)})["output"]), output[tokens])
        assert member.expected(vector.expected)["output"].budget.info.shape[0] == tokens.stop - tokens.start


def test_members_are_spread_over_a_large_batch_and_a_batch_of_one_has_none() -> None:
    assert [member.sequence for member in members(CASES["paged/large_batch/300"].vector(), most=4)] == [0, 99, 199, 299]
    assert list(members(CASES["paged/long/decode_4096"].vector(), most=4)) == []
    assert list(members(CASES["paged/device_values/tokens_of_no_sequence"].vector(), most=4)) == []


def test_the_page_gets_one_case_of_each_feature_before_a_second_of_any() -> None:
    sizes = [("p/a/1", 5), ("p/a/2", 1), ("p/a/3", 2), ("p/b/1", 6), ("p/c/1", 100)]
    assert choose(sizes, 9) == {"p/a/2", "p/b/1", "p/a/3"}
    assert choose(sizes, 7) == {"p/a/2", "p/b/1"}
    assert choose(sizes, 1000) == {name for name, _ in sizes}


def test_case_files_and_their_index_read_back(tmp_path: Path) -> None:
    heard: list[int] = []
    names = write_vectors([CASES[RAGGED], CASES["paged/sink/decode"]], tmp_path, heard.append)
    index = json.loads((tmp_path / "index.json").read_text())["cases"]
    assert names == [entry["name"] for entry in index] == [RAGGED, "paged/sink/decode"]
    assert heard == [1, 2]
    for entry in index:
        data = (tmp_path / entry["file"]).read_bytes()
        assert (read_vector(data).name, len(data)) == (entry["name"], entry["bytes"])


def test_what_the_page_publishes_is_small_and_has_every_feature_that_a_small_case_shows(tmp_path: Path) -> None:
    names = write_published("paged_attention", tmp_path, most_bytes=3_000_000, most_bytes_of_one=400_000)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors")) <= 3_000_000
    features = {name.split("/")[1] for name in names}
    assert features >= {"bfloat16", "float8e4m3fn", "int4", "int8", "latent", "noncausal", "sink", "slot_mapping",
                        "softcap", "window"}  # fmt: skip
