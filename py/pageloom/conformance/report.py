"""What became of the cases of a run, in words and as JSON. Standard library only: it runs in the tab too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "failed", "skipped"]
Alone = Literal["", "same bits", "within budget", "off"]
_WEAKNESS: tuple[Alone, ...] = ("", "same bits", "within budget", "off")


def weakest(alone: Iterable[Alone]) -> Alone:
    """How members came out at the worst; "" for no members."""
    return max(alone, default="", key=_WEAKNESS.index)


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What became of one case.

    - `tier`: what computed it; `faster`: for each faster tier the reason why it did not.
    - `asked`: the tier that it was to run on, or "" where the operator chose; `level`: the instruction set, on a CPU.
    - `worst_error`, `budget`: of the element that uses most of its budget, and `where` that is.
    - `alone`: how the members of the batch came out when each ran by itself: with the batch's very bits, within the
      budget of the batch's rows, or off; "" where there is nothing to compare.
    - `detail`: why the case failed or was skipped.
    """

    name: str
    operator: str
    outcome: Outcome
    tier: str = ""
    faster: Mapping[str, str] = field(default_factory=dict)
    worst_error: float = 0.0
    budget: float = 0.0
    where: str = ""
    alone: Alone = ""
    detail: str = ""
    seconds: float = 0.0
    asked: str = ""
    level: str = ""

    @property
    def feature(self) -> str:
        """The part of the matrix that the case belongs to: the second part of its name."""
        return self.name.split("/")[1]

    @property
    def share(self) -> float:
        """Worst error over its budget; infinite where no error was allowed."""
        if not self.worst_error:
            return 0.0
        return self.worst_error / self.budget if self.budget else math.inf

    def to_fields(self) -> dict[str, Any]:
        """As JSON, which has no infinity: numbers that are none are null."""
        fields = {**asdict(self), "feature": self.feature, "share": self.share}
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in fields.items()}  # fmt: skip

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> CaseReport:
        """The report that `to_fields` wrote."""
        given = {name: value for name, value in fields.items() if name not in ("feature", "share")}
        numbers = {name: math.inf for name in ("worst_error", "budget", "seconds") if given[name] is None}
        return cls(**{**given, **numbers})


@dataclass(frozen=True, slots=True)
class FeatureSummary:
    """The cases of one feature. `worst_share` is over those that passed; `tiers` counts cases by what computed them."""

    feature: str
    passed: int
    failed: int
    skipped: int
    worst_share: float
    tiers: Mapping[str, int]


def summarize(reports: Iterable[CaseReport]) -> list[FeatureSummary]:
    """One line for each feature, in the order in which they first come."""
    by_feature: dict[str, list[CaseReport]] = {}
    for report in reports:
        by_feature.setdefault(report.feature, []).append(report)
    return [_summary(feature, members) for feature, members in by_feature.items()]


def _summary(feature: str, reports: list[CaseReport]) -> FeatureSummary:
    outcomes = [report.outcome for report in reports]
    tiers: dict[str, int] = {}
    for report in reports:
        if report.tier:
            tiers[report.tier] = tiers.get(report.tier, 0) + 1
    return FeatureSummary(
        feature,
        passed=outcomes.count("passed"),
        failed=outcomes.count("failed"),
        skipped=outcomes.count("skipped"),
        worst_share=max((report.share for report in reports if report.outcome == "passed"), default=0.0),
        tiers=tiers,
    )


def counts(reports: Iterable[CaseReport]) -> dict[Outcome, int]:
    """How many cases came to each outcome."""
    totals: dict[Outcome, int] = {"passed": 0, "failed": 0, "skipped": 0}
    for report in reports:
        totals[report.outcome] += 1
    return totals
