"""How a step becomes the integers that graphs read: single tokens first, prompts behind them, nothing stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pageloom.backends.cuda.model.step_layout import NO_ROW, NO_SEQUENCE, StepLayout, StepWriter, arrange
from pageloom.engine.batch import LogitAdjustment, LogitTarget, RowMask, StepBatch
from tests.fake_runner import limits

LIMITS = limits(
    max_sequences=4, max_tokens=8, max_blocks_per_sequence=3, vocab_size=40, max_adjustments=4, max_targets=4
)
MIXED: dict[str, Any] = {
    "input_ids": (10, 20, 21, 22, 30, 40, 41),
    "feed_rows": (1, -1, -1, -1, -1, -1, -1),
    "cumulative_sequence_length": (0, 1, 4, 5, 7),
    "past_seqlens": (9, 0, 4, 2),
    "block_table": ((7, 8, 9), (1,), (2, 3), (4,)),
    "logits_rows": (0, 3, 4, 6),
}


class Device:
    """What the device would hold: only what is copied reaches it."""

    def __init__(self) -> None:
        self.layout = StepLayout(LIMITS)
        self._host = np.full(self.layout.size, 77, np.int32)
        self._words = np.full(self.layout.size, 77, np.int32)
        self._writer = StepWriter(self.layout, self._host)

    def take(self, batch: StepBatch) -> None:
        for region in self._writer.write(batch, arrange(batch, LIMITS.max_sequences)):
            self._words[region.start : region.end] = self._host[region.start : region.end]

    def __getitem__(self, name: str) -> list[int]:
        region = self.layout[name]
        return self._words[region.start : region.end].tolist()


def test_single_tokens_come_first_and_prompts_behind_the_rows_set_aside_for_them() -> None:
    arrangement = arrange(StepBatch(**MIXED), 4)
    assert list(arrangement.singles) == [0, 2]
    assert list(arrangement.prompts) == [1, 3]
    assert list(arrangement.rows) == [0, 4, 5, 6, 1, 7, 8]
    assert arrangement.prompt_tokens == 5


def test_a_sequence_without_new_tokens_has_no_row() -> None:
    batch = StepBatch((5, 6), (-1, -1), (0, 0, 1, 2), (3, 1, 2), ((1,), (2,), (3,)), (1,))
    arrangement = arrange(batch, 4)
    assert (list(arrangement.singles), list(arrangement.prompts)) == ([1, 2], [])
    assert (list(arrangement.rows), arrangement.prompt_tokens) == ([0, 1], 0)


def test_a_mixed_step_is_laid_out_and_the_places_behind_it_belong_to_nobody() -> None:
    device = Device()
    device.take(StepBatch(**MIXED))
    assert device["input_ids"] == [10, 30, 0, 0, 20, 21, 22, 40, 41, 0, 0, 0]
    assert device["feed_rows"] == [1, *[NO_ROW] * 11]
    assert device["past"] == [9, 4, NO_SEQUENCE, NO_SEQUENCE]
    assert device["prompt_past"] == [0, 2, NO_SEQUENCE, NO_SEQUENCE]
    assert device["prompt_starts"] == [0, 3, 5, 5, 5]
    assert device["logits_rows"] == [0, 6, 1, 8]
    assert device["table"][:5] == [7, 8, 9, 2, 3]
    assert (device["prompt_table"][0], device["prompt_table"][3]) == (1, 4)
    assert device["mask_slots"] == [NO_ROW] * 4
    assert (device["num_adjustments"], device["num_targets"]) == ([0], [0])


def test_a_step_leaves_nothing_of_the_one_before() -> None:
    device = Device()
    device.take(StepBatch(**MIXED, masks=(RowMask(1, bytes([1] * 8)),), adjustments=(LogitAdjustment(0, 3, bias=1.0),)))
    device.take(StepBatch((50,), (-1,), (0, 1), (10,), ((7, 8, 6),), (0,)))
    assert device["input_ids"] == [50, *[0] * 11]
    assert device["past"] == [10, *[NO_SEQUENCE] * 3]
    assert device["table"][:3] == [7, 8, 6]
    assert device["logits_rows"] == [0] * 4
    assert device["mask_slots"] == [NO_ROW] * 4
    assert device["num_adjustments"] == [0]


def test_equal_masks_are_kept_once_and_each_row_names_its_own() -> None:
    first, second = b"\x01" * 8, b"\x02" * 8
    device = Device()
    device.take(StepBatch(**MIXED, masks=(RowMask(0, first), RowMask(2, second), RowMask(3, first))))
    assert device["mask_slots"] == [0, NO_ROW, 1, 0]
    assert device["masks"][:4] == [0x01010101] * 2 + [0x02020202] * 2


def test_adjustments_and_targets_are_written_by_field() -> None:
    changes = (LogitAdjustment(0, 3, bias=-1.5), LogitAdjustment(2, 9, divisor=2.0))
    device = Device()
    device.take(StepBatch(**MIXED, adjustments=changes, targets=(LogitTarget(1, 5), LogitTarget(3, 6))))
    assert (device["adjustment_rows"][:2], device["adjustment_tokens"][:2]) == ([0, 2], [3, 9])
    assert np.array(device["divisors"][:2], np.int32).view(np.float32).tolist() == [1.0, 2.0]
    assert np.array(device["biases"][:2], np.int32).view(np.float32).tolist() == pytest.approx([-1.5, 0.0])
    assert (device["target_rows"][:2], device["target_tokens"][:2]) == ([1, 3], [5, 6])
    assert (device["num_adjustments"], device["num_targets"]) == ([2], [2])
