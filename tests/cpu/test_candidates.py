"""The search for the best tokens on every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from kernels_kit import LEVELS, count_of

kernels = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not installed")

Array = npt.NDArray[Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260131)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("vocabulary", "wanted"), [(5, 5), (33, 1), (1000, 64), (1003, 7)])
def test_candidates_are_the_best_tokens_lower_ids_first(
    rng: np.random.Generator, level: str, vocabulary: int, wanted: int
) -> None:
    logits = rng.integers(-40, 40, (3, vocabulary)).astype(np.float32) / 8  # many are equal
    found = search(logits, wanted, level)
    for row in range(3):
        order = np.lexsort((np.arange(vocabulary), -logits[row]))[:wanted]
        np.testing.assert_array_equal(found["token_ids"][row, :wanted], order)
        np.testing.assert_array_equal(found["values"][row, :wanted], logits[row, order])
        wide = logits[row].astype(np.float64)
        np.testing.assert_allclose(found["log_sum_exp"][row], np.log(np.exp(wide).sum()), rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_adjustments_change_logits_before_the_search(level: str) -> None:
    logits = np.array([[1.0, -2.0, 3.0, 0.5]] * 2, np.float32)
    found = search(logits, 4, level, adjustments=[(0, 2, 2.0, 0.25), (1, 1, 4.0, 100.0)])
    assert found["values"][0, :2].tolist() == [1.75, 1.0]
    assert found["token_ids"][0, :2].tolist() == [2, 0]
    assert found["values"][1, 0] == 92.0
    assert found["token_ids"][1, :4].tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 35, 36])
def test_logits_that_are_no_numbers_are_told(level: str, poison: float, place: int) -> None:
    logits = np.zeros((1, 37), np.float32)
    logits[0, place] = poison
    assert np.isnan(search(logits, 1, level)["log_sum_exp"][0])


def search(
    logits: Array, wanted: int, level: str, adjustments: list[tuple[int, int, float, float]] | None = None
) -> dict[str, Array]:
    rows, tokens, divisors, biases = zip(*(adjustments or [(0, 0, 1.0, 0.0)]), strict=True)
    outputs = {
        "token_ids": np.zeros((len(logits), 64), np.int32),
        "values": np.zeros((len(logits), 64), np.float32),
        "log_sum_exp": np.zeros(len(logits), np.float32),
    }
    kernels.Candidates(
        logits,
        count_of(len(logits)),
        num_candidates=count_of(wanted),
        **outputs,
        adjustment_rows=np.array(rows, np.int32),
        adjustment_tokens=np.array(tokens, np.int32),
        adjustment_divisors=np.array(divisors, np.float32),
        adjustment_biases=np.array(biases, np.float32),
        num_adjustments=count_of(len(adjustments or [])),
        level=level,
    )()
    return outputs
