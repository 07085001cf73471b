"""What `pageloom check` prints: a few lines a case, and at the end a line for each feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TextIO

from pageloom.commands.summary import adapter_name
from pageloom.conformance.report import CaseReport, FeatureSummary, counts, summarize

_HEADINGS = ("feature", "passed", "failed", "skipped", "of its budget", "computed by")
_TIER_HEADINGS = ("operator", "level", "tier", "passed", "failed", "skipped")


def report_lines(report: CaseReport) -> list[str]:
    """The case and what became of it; below it why it failed or was skipped, and why nothing faster computed it."""
    parts = [f"{report.outcome:7} {report.name}"]
    if report.tier:
        parts.append(f"by {report.tier}" + (f" on {report.level}" if report.level else ""))
    if report.outcome == "passed":
        parts.append(f"error {report.worst_error:.2g}, {_percent(report.share)} of its budget")
    if report.alone:
        parts.append(f"alone: {report.alone}")
    lines = [", ".join(parts)]
    if report.detail:
        lines.append(f"        {report.detail}")
    return [*lines, *(f"        not by {tier}: {reason}" for tier, reason in report.faster.items())]


def print_summary(stream: TextIO, reports: Sequence[CaseReport], adapter: Mapping[str, object]) -> None:
    """A table by feature, one by tier where tiers were asked for, the total, and the adapter (its fields as in the
    page's protocol)."""
    _print_table(stream, [_HEADINGS, *(_row(summary) for summary in summarize(reports))])
    if any(report.asked for report in reports):
        print(file=stream)
        _print_table(stream, [_TIER_HEADINGS, *_tier_rows(reports)])
    total = counts(reports)
    alone = [report.alone for report in reports if report.alone]
    print(
        f"\n{total['passed']} of {len(reports)} cases passed, {total['failed']} failed, {total['skipped']} skipped",
        file=stream,
    )
    if alone:
        print(
            f"{alone.count('same bits')} of {len(alone)} batches give each member the bits it gets alone", file=stream
        )
    print(f"adapter: {describe_adapter(adapter)}", file=stream)


def _print_table(stream: TextIO, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=stream)


def _tier_rows(reports: Sequence[CaseReport]) -> list[tuple[str, ...]]:
    """A line for each operator, instruction set and tier asked for, in the order in which they first come."""
    groups: dict[tuple[str, str, str], list[CaseReport]] = {}
    for report in sorted(reports, key=lambda report: report.operator):
        groups.setdefault((report.operator, report.level, report.asked or "its own choice"), []).append(report)
    return [
        (*group, *(str(counts(members)[outcome] or "") for outcome in ("passed", "failed", "skipped")))
        for group, members in groups.items()
    ]


def describe_adapter(adapter: Mapping[str, object]) -> str:
    if adapter["adapter_class"] in ("cpu", "cuda"):
        return str(adapter["description"])
    name = adapter["description"] or f"{adapter['vendor']} {adapter['architecture']}"
    home = "native" if adapter["home"] == "native" else "in a browser tab"
    return adapter_name(str(name), str(adapter["adapter_class"]), has_f16=bool(adapter["f16"]), home=home)


def _row(summary: FeatureSummary) -> tuple[str, ...]:
    return (
        summary.feature,
        str(summary.passed),
        str(summary.failed or ""),
        str(summary.skipped or ""),
        _percent(summary.worst_share) if summary.passed else "",
        ", ".join(f"{tier} {count}" for tier, count in summary.tiers.items()),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else "over"
