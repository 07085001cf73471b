"""The cases of `pageloom check` on the native device."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pageloom.attention.cases.case import Case
from pageloom.backends.webgpu.native import open_native_device
from pageloom.commands.batch_files import PREFERENCES
from pageloom.conformance.adapter import adapter_fields
from pageloom.conformance.baseline import BASELINE_LIMITS, BASELINE_WITHOUT
from pageloom.conformance.report import CaseReport
from pageloom.conformance.run import CaseRunner


def check_natively(
    cases: Sequence[Case], options: argparse.Namespace, on_report: Callable[[CaseReport], None]
) -> dict[str, Any]:
    """Run `cases` one after another, telling each report as it is made; returns the adapter's fields."""
    return asyncio.run(_check(cases, options, on_report))


async def _check(
    cases: Sequence[Case], options: argparse.Namespace, on_report: Callable[[CaseReport], None]
) -> dict[str, Any]:
    device = await open_native_device(
        prefer=PREFERENCES[options.gpu],
        limits=BASELINE_LIMITS if options.baseline else None,
        without_features=BASELINE_WITHOUT if options.baseline else (),
    )
    try:
        runner = CaseRunner(device, options.tier)
        for case in cases:
            on_report(await runner.run(case.vector()))
        return adapter_fields(device.info)
    finally:
        device.close()
