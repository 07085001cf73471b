"""The constraint buffer holds what the shaders look for, where its table says."""

import struct
from dataclasses import replace

from pageloom.backends.webgpu.constraint_layout import ConstraintLayout
from pageloom.engine.batch import LogitTarget, RowMask
from tests.unit.webgpu.test_step_layout import BATCH, LIMITS

FIRST, SECOND = struct.pack("<4I", 1, 2, 3, 4), struct.pack("<4I", 5, 6, 7, 8)


def test_rows_find_their_masks_equal_ones_in_one_place_and_targets_come_in_order() -> None:
    masks = (RowMask(0, FIRST), RowMask(2, SECOND), RowMask(3, bytes(FIRST)))
    batch = replace(BATCH, logits_rows=(0, 1, 2, 3), masks=masks, targets=(LogitTarget(1, 42), LogitTarget(2, 7)))
    data = ConstraintLayout(LIMITS).pack(batch)
    words = struct.unpack(f"<{len(data) // 4}I", data)
    starts = words[1:5]
    assert words[0] == 2
    assert words[5:9] == (1, 42, 2, 7)
    assert [words[start : start + 4] for start in (starts[0], starts[2])] == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert (starts[1], starts[3]) == (0, starts[0])
    assert len(words) == 1 + 4 + 4 + 2 * 4


def test_the_most_that_the_limits_allow_fits() -> None:
    limits = replace(LIMITS, max_targets=3)
    masks = tuple(RowMask(row, struct.pack("<4I", row + 1, 0, 0, 0)) for row in range(4))
    targets = tuple(LogitTarget(0, token) for token in range(3))
    batch = replace(BATCH, logits_rows=(0, 1, 2, 3), masks=masks, targets=targets)
    assert len(ConstraintLayout(limits).pack(batch)) == 4 * ConstraintLayout(limits).max_words
