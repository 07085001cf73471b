"""`pageloom check`: the attention operators against their reference on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pageloom import __version__
from pageloom.commands.batch_files import PREFERENCES
from pageloom.commands.check_summary import print_summary, report_lines
from pageloom.commands.json_file import json_file
from pageloom.commands.terminal import ProgressLine
from pageloom.conformance.report import CaseReport, counts
from pageloom.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from pageloom.attention.cases.case import Case

OPERATORS = ("paged_attention", "group_query_attention", "onnx_attention", "tensor_scatter")
ON_BACKEND: dict[str, tuple[str, ...]] = {
    "webgpu": ("paged_attention",),
    "tab": ("paged_attention",),
    "cpu": OPERATORS,
    "cuda": OPERATORS,
}
"""The operators that each backend has."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="hold the attention operators against their reference on this machine",
        description="Runs the conformance matrix on this machine's WebGPU adapter, CPU or NVIDIA GPU: each case "
        "against a reference in double precision, with what computed it and why nothing faster did. Exits with 1 where "
        "a case failed.",
    )
    parser.add_argument(
        "--backend",
        choices=tuple(ON_BACKEND),
        default="webgpu",
        help="WebGPU natively or in a Chromium tab, the CPU, or CUDA; default: %(default)s",
    )
    parser.add_argument("--operator", choices=OPERATORS, help="default: all that the backend has")
    parser.add_argument("--quick", action="store_true", help="the subset that runs with every change")
    parser.add_argument("--case", metavar="GLOB", help="cases whose name matches, such as 'paged/int4/*'")
    parser.add_argument(
        "--tier",
        metavar="NAME",
        help="on this tier or not at all; default: the fastest that can, on a CPU and CUDA also each other one",
    )
    parser.add_argument("--fastest", action="store_true", help="on the fastest tier that can, and on no other")
    parser.add_argument("--baseline", action="store_true", help="with the least that any WebGPU adapter offers")
    parser.add_argument("--gpu", choices=PREFERENCES, default="auto", help="the kind of adapter; default: %(default)s")
    parser.add_argument("--verbose", action="store_true", help="a line for each case, not only for those that failed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case's report")
    parser.add_argument("--lines", action="store_true", help="say each case's report as a line of JSON as it comes")
    cpu = parser.add_argument_group("with --backend cpu")
    cpu.add_argument("--level", metavar="NAME", help="on this instruction set; default: on each that there is")
    cpu.add_argument("--threads", type=int, metavar="N", help="of the pool; default: one for each core")
    cuda = parser.add_argument_group("with --backend cuda")
    cuda.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that compile and run; default: 1")
    browser = parser.add_argument_group("with --backend tab")
    browser.add_argument("--page", type=Path, metavar="DIR", help="a built page; default: dist/")
    browser.add_argument("--browser", metavar="PATH", help="Chromium or Chrome; default: the one found")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    cases = choose_cases(options)
    progress = ProgressLine(sys.stderr)
    reports: list[CaseReport] = []
    expected = len(cases)

    def on_report(report: CaseReport) -> None:
        reports.append(report)
        if options.lines:
            print(json.dumps({"report": report.to_fields(), "total": expected}, allow_nan=False), flush=True)
            return
        if options.verbose or report.outcome == "failed":
            progress.clear()
            print("\n".join(report_lines(report)), flush=True)
        failed = counts(reports)["failed"]
        detail = f"{len(reports)} of {expected} cases" + (f", {failed} failed" if failed else "")
        progress.show("Checking", len(reports), expected, detail)

    with json_file(options.json) as write:
        if options.backend == "tab":
            from pageloom.commands.check_tab import check_in_tab  # noqa: PLC0415 - needs numpy, which is optional

            adapter = check_in_tab(cases, options, on_report, progress)
        elif options.backend == "cpu":
            from pageloom.commands.check_cpu import check_on_cpu, make_runners  # noqa: PLC0415 - needs numpy

            runners = make_runners(options)
            expected *= len(runners)
            adapter = check_on_cpu(cases, runners, on_report)
        elif options.backend == "cuda":
            from pageloom.commands.check_cuda import check_on_cuda  # noqa: PLC0415 - needs numpy, which is optional

            adapter = check_on_cuda(cases, options, on_report)
        else:
            from pageloom.commands.check_native import check_natively  # noqa: PLC0415

            adapter = check_natively(cases, options, on_report)
        progress.clear()
        if options.lines:
            print(json.dumps({"adapter": adapter, "counts": counts(reports)}, allow_nan=False))
        else:
            print_summary(sys.stdout, reports, adapter)
        write(_as_json(options.backend, adapter, reports))
    return 1 if counts(reports)["failed"] else 0


def choose_cases(options: argparse.Namespace) -> Sequence[Case]:
    """The cases that the options name.

    Raises `NotSupported` for an operator that the backend does not have or where numpy is missing, `InvalidArgument`
    where no case is left.
    """
    offered = ON_BACKEND[options.backend]
    if options.operator not in (None, *offered):
        raise NotSupported(
            f"{options.operator} is not on the backend {options.backend}; there is {', '.join(offered)}",
            param="operator",
        )
    try:
        from pageloom.attention.cases.matrix import all_cases  # noqa: PLC0415 - needs numpy, which is optional
    except ImportError as error:
        raise NotSupported(f"the cases need numpy and ml_dtypes: pip install 'pageloom[check]' ({error})") from error
    cases = [
        case
        for case in all_cases(operator=options.operator, quick=options.quick)
        if case.operator in offered and (options.case is None or fnmatchcase(case.name, options.case))
    ]
    if not cases:
        quick = " of the quick ones" if options.quick else ""
        raise InvalidArgument(
            f"no case{quick} matches {options.case!r}; names look like 'paged/int4/...'", param="case"
        )
    return cases


def _as_json(backend: str, adapter: Mapping[str, object], reports: Sequence[CaseReport]) -> dict[str, object]:
    return {
        "pageloom": __version__,
        "backend": backend,
        "adapter": adapter,
        "counts": counts(reports),
        "cases": [report.to_fields() for report in reports],
    }
