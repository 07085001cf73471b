"""Outputs held against what is expected of them. Standard library only: it runs in the tab too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pageloom.attention.tensors import ITEM_BYTES, DType, Tensor

LOWEST: dict[DType, float] = {
    "float64": -1.7976931348623157e308,
    "float32": -3.4028234663852886e38,
    "float16": -65504.0,
    "bfloat16": -3.3895313892515355e38,
}
"""The lowest finite number; with it or below it an implementation may say minus infinity."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one output must be.

    `values` of any float or integer type; `budget` float64, one bound for each row of the last axis: 0 means equal (and
    NaN the same NaN, bit for bit), infinity that the contract says nothing of the row. `optional` outputs may be
    missing.
    """

    values: Tensor
    budget: Tensor
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`worst_error` and its `budget` are of the element that uses most of its budget; `where` names it."""

    passed: bool
    worst_error: float
    budget: float
    where: str

    @property
    def share(self) -> float:
        """Error over budget: at most 1 where passed, and infinite where no error at all was allowed."""
        if not self.worst_error:
            return 0.0
        return self.worst_error / self.budget if self.budget else math.inf


def compare_outputs(expected: Mapping[str, Expected], outputs: Mapping[str, Tensor]) -> Verdict:
    """The verdict over all outputs: passed only if each is there, of the right shape, and within its budget."""
    worst = Verdict(True, 0.0, 0.0, "")
    for name, want in expected.items():
        got = outputs.get(name)
        if got is None:
            verdict = Verdict(want.optional, 0.0 if want.optional else math.inf, 0.0, f"{name} is missing")
        elif got.info.num_elements != want.values.info.num_elements:
            where = f"{name} has shape {got.info.shape}; {want.values.info.shape} is expected"
            verdict = Verdict(False, math.inf, 0.0, where)
        else:
            verdict = _compare_tensor(name, want, got)
        if (not verdict.passed, verdict.share) > (not worst.passed, worst.share):
            worst = verdict
    return worst


def _compare_tensor(name: str, want: Expected, got: Tensor) -> Verdict:
    worst = Verdict(True, 0.0, 0.0, "")
    shape = want.values.info.shape
    got = Tensor(type(got.info)(got.info.dtype, shape), got.data)
    same_type = got.info.dtype == want.values.info.dtype
    for row in range(math.prod(shape[:-1])):
        if same_type and got.row_bytes(row) == want.values.row_bytes(row):
            continue
        (budget,) = _budget(want, row)
        if budget == math.inf:
            continue
        column, error = _worst_of_row(want.values, got, row, budget)
        verdict = Verdict(error <= budget, error, budget, "")
        if (not verdict.passed, verdict.share) > (not worst.passed, worst.share):
            where = f"{name}{_index(shape, row, column)} is {got.row(row)[column]!r}; "
            where += f"{want.values.row(row)[column]!r} within {budget:.3g} is expected"
            worst = Verdict(verdict.passed, error, budget, where)
    return worst


def _budget(want: Expected, row: int) -> Sequence[float]:
    return want.budget.data[row * 8 : row * 8 + 8].cast("d")


def _worst_of_row(want: Tensor, got: Tensor, row: int, budget: float) -> tuple[int, float]:
    """(column, error) of the largest error of a row; infinite where a number has no business there."""
    worst = (0, 0.0)
    size = ITEM_BYTES[got.info.dtype]
    pairs = zip(got.row(row), want.row(row), strict=True)
    for column, (actual, ideal) in enumerate(pairs):
        if actual == ideal:
            continue
        error = abs(actual - ideal)
        if ideal == -math.inf:
            error = 0.0 if actual <= LOWEST[got.info.dtype] else math.inf
        elif math.isnan(ideal):
            span = slice(column * size, (column + 1) * size)
            error = 0.0 if got.row_bytes(row)[span] == want.row_bytes(row)[span] else math.inf
        elif not math.isfinite(error):
            error = math.inf
        if error > worst[1]:
            worst = (column, error)
    return worst


def _index(shape: tuple[int, ...], row: int, column: int) -> list[int]:
    index = [column]
    for size in reversed(shape[:-1]):
        index.insert(0, row % size)
        row //= size
    return index


def worse(first: Verdict, second: Verdict) -> Verdict:
    """The one that failed, or that uses more of its budget; the first of two alike."""
    return max(first, second, key=lambda verdict: (not verdict.passed, verdict.share))
