"""Masks and targets that break the contract of a step never reach a device."""

from dataclasses import replace
from typing import Any

import pytest

from pageloom.engine.batch import LogitTarget, RowMask, StepBatch
from pageloom.engine.check_batch import check_batch
from pageloom.errors import InvalidArgument
from tests.fake_runner import limits

ALL = b"\xff\xff\xff\xff"
BATCH = StepBatch(
    input_ids=(1, 2, 3),
    feed_rows=(-1, -1, -1),
    cumulative_sequence_length=(0, 2, 3),
    past_seqlens=(0, 0),
    block_table=((1,), (2,)),
    logits_rows=(1, 2),
)
MOST_TARGETS = 3


def targets(*entries: tuple[int, int]) -> tuple[LogitTarget, ...]:
    return tuple(LogitTarget(*entry) for entry in entries)


@pytest.mark.parametrize(
    "changes",
    [
        {"masks": (RowMask(2, ALL),)},
        {"masks": (RowMask(-1, ALL),)},
        {"masks": (RowMask(1, ALL), RowMask(0, ALL))},
        {"masks": (RowMask(1, ALL), RowMask(1, ALL))},
        {"masks": (RowMask(0, ALL * 2),)},
        {"masks": (RowMask(0, bytes(4)),)},
        {"targets": targets((2, 0))},
        {"targets": targets((0, 32))},
        {"targets": targets((0, -1))},
        {"targets": targets((1, 0), (0, 0))},
        {"targets": targets(*[(0, 1)] * (MOST_TARGETS + 1))},
    ],
)
def test_a_constraint_that_breaks_the_contract_is_refused_with_its_field(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_batch(replace(BATCH, **changes), limits(max_targets=MOST_TARGETS))
    assert [refused.value.param] == list(changes)


def test_one_that_keeps_it_is_taken() -> None:
    masks = (RowMask(0, ALL), RowMask(1, b"\x01\x00\x00\x00"))
    check_batch(replace(BATCH, masks=masks, targets=targets((0, 1), (0, 0), (1, 31))), limits(max_targets=MOST_TARGETS))
