"""The whole matrix, and how to pick from it."""

from __future__ import annotations

from collections.abc import Iterator

from pageloom.attention.cases import (
    group_query_cases,
    half_precision,
    onnx_cases,
    paged_features,
    paged_prologue,
    paged_regressions,
    paged_storage,
    paged_sweeps,
)
from pageloom.attention.cases.case import Case, Operator

_PARTS = (paged_sweeps, paged_features, paged_prologue, paged_storage, paged_regressions, group_query_cases, onnx_cases,
          half_precision)  # fmt: skip


def all_cases(*, operator: Operator | None = None, quick: bool = False) -> Iterator[Case]:
    """Every case, or those of one operator, or the quick subset; names are unique and the order is fixed."""
    for part in _PARTS:
        for case in part.cases():
            if (operator is None or case.operator == operator) and (case.quick or not quick):
                yield case
