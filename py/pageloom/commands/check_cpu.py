"""The cases of `pageloom check` on the CPU: every tier of every instruction set, unless some are named."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from pageloom.attention.cases.case import Case
from pageloom.backends.cpu.context import why_no_kernels
from pageloom.backends.cpu.facts import cpu_facts
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.tiers import COMPILED_TIERS
from pageloom.conformance.report import CaseReport
from pageloom.conformance.run_cpu import CpuCaseRunner


def make_runners(options: argparse.Namespace) -> list[CpuCaseRunner]:
    """One for each combination of level and tier that the options name, or for each that there is.

    Raises `InvalidArgument` for a tier or level that there is not, `NotSupported` for a level that cannot run here.
    """
    if options.tier == "reference" or (why_no_kernels() and options.level is None):
        return [CpuCaseRunner(CpuOperators(threads=options.threads), options.tier)]
    if options.fastest:
        return [CpuCaseRunner(CpuOperators(threads=options.threads, level=options.level), options.tier)]
    levels = [options.level] if options.level else cpu_facts().levels
    tiers: Sequence[str | None] = [options.tier] if options.tier else [None, *COMPILED_TIERS]
    runners = [
        CpuCaseRunner(CpuOperators(threads=options.threads, level=level), tier) for level in levels for tier in tiers
    ]
    if options.tier is None and options.level is None:
        runners.append(CpuCaseRunner(CpuOperators(threads=options.threads), "reference"))
    return runners


def check_on_cpu(
    cases: Sequence[Case], runners: Sequence[CpuCaseRunner], on_report: Callable[[CaseReport], None]
) -> dict[str, Any]:
    """Run each case on all `runners`, telling each report as it is made; returns the CPU's fields."""
    for case in cases:
        vector = case.vector()
        for runner in runners:
            on_report(runner.run(vector))
    facts = cpu_facts()
    return {**facts.to_fields(), "description": facts.describe(), "adapter_class": "cpu", "home": "native"}
