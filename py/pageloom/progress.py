"""Progress of anything slow, as plain data that a page, a terminal or nobody may show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["header", "weights", "compile"]


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` units of `stage`: bytes for "header" and "weights", programs for "compile"."""

    stage: Stage
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """For callers that show nothing."""
