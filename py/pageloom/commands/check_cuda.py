"""The cases of `pageloom check` on an NVIDIA GPU: each on the tier that is chosen, and on every other one."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pageloom.attention.cases.case import Case
from pageloom.attention.cases.matrix import all_cases
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.tiers import TIERS
from pageloom.conformance.report import CaseReport

_state: dict[str, Any] = {}
"""What a worker process made at its start."""


def check_on_cuda(
    cases: Sequence[Case], options: argparse.Namespace, on_report: Callable[[CaseReport], None]
) -> dict[str, Any]:
    """Run each case on each tier that the options name, telling each report as it is made; returns the GPU's fields.

    With more than one job, processes share the work: most of the time goes into compiling kernels, which processors do.
    Raises `NotSupported` where there is no GPU.
    """
    tiers: Sequence[str | None] = [options.tier] if options.tier or options.fastest else [None, *TIERS]
    facts = CudaOperators().facts
    if options.jobs == 1:
        _start(tiers)
        for case in cases:
            for report in _reports(case):
                on_report(report)
    else:
        context = multiprocessing.get_context("spawn")
        with context.Pool(options.jobs, _start, (tiers,)) as pool:
            for reports in pool.imap_unordered(_reports_of, [case.name for case in cases]):
                for report in reports:
                    on_report(report)
    return {**asdict(facts), "description": facts.describe(), "adapter_class": "cuda", "home": "native"}


def _start(tiers: Sequence[str | None]) -> None:
    import torch  # noqa: PLC0415 - optional

    from pageloom.conformance.run_cuda import CudaCaseRunner  # noqa: PLC0415 - needs PyTorch

    operators = CudaOperators()
    _state["runners"] = [CudaCaseRunner(operators, torch.device("cuda"), tier) for tier in tiers]
    _state["cases"] = {case.name: case for case in all_cases()}


def _reports_of(name: str) -> list[CaseReport]:
    return list(_reports(_state["cases"][name]))


def _reports(case: Case) -> Iterator[CaseReport]:
    vector = case.vector()
    for runner in _state["runners"]:
        if runner.has_tier_of(vector.operator):
            yield runner.run(vector)
