"""Where the integers of a step lie, in 32-bit words, and how a `StepBatch` becomes them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pageloom.engine.batch import RunnerLimits, StepBatch, mask_bytes

NO_SEQUENCE = -1
"""A past length that takes no part in attention."""
NO_ROW = -1
"""No row feeds a token; or no mask is on a row."""

Words = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Region:
    """Words [start, end) of a step."""

    start: int
    end: int


class StepLayout:
    """Three stretches, each copied as a whole where a step has need of it: lengths, ids and block table; adjustments
    and targets; masks. The block table and the masks end their stretches, of which the first rows are enough."""

    def __init__(self, limits: RunnerLimits) -> None:
        tokens, sequences = limits.max_tokens, limits.max_sequences
        self.limits = limits
        self.columns = limits.max_blocks_per_sequence
        self.mask_words = mask_bytes(limits.vocab_size) // 4
        lengths = {
            "input_ids": tokens,
            "feed_rows": tokens,
            "cumulative_sequence_length": sequences + 1,
            "past_seqlens": sequences,
            "logits_rows": sequences,
            "mask_slots": sequences,
            "num_adjustments": 1,
            "num_targets": 1,
            "block_table": sequences * self.columns,
            "adjustment_rows": limits.max_adjustments,
            "adjustment_tokens": limits.max_adjustments,
            "divisors": limits.max_adjustments,
            "biases": limits.max_adjustments,
            "target_rows": limits.max_targets,
            "target_tokens": limits.max_targets,
            "masks": sequences * self.mask_words,
        }
        ends = list(itertools.accumulate(lengths.values(), initial=0))
        self._regions = {name: Region(*ends[index : index + 2]) for index, name in enumerate(lengths)}
        self.size = ends[-1]

    def __getitem__(self, name: str) -> Region:
        return self._regions[name]

    def stretches(self, batch: StepBatch) -> list[Region]:
        """What of a written step has to be copied."""
        table = self["block_table"].start + len(batch.past_seqlens) * self.columns
        found = [Region(0, table)]
        if batch.adjustments or batch.targets:
            found.append(Region(self["adjustment_rows"].start, self["target_tokens"].end))
        if batch.masks:
            start = self["masks"].start
            found.append(Region(start, start + len(mask_slots(batch)) * self.mask_words))
        return found


def mask_slots(batch: StepBatch) -> dict[bytes, int]:
    """The place of each different mask of a step."""
    slots: dict[bytes, int] = {}
    for mask in batch.masks:
        slots.setdefault(mask.allowed, len(slots))
    return slots


class StepWriter:
    """Writes steps to words on the host, and remembers which rows of the block table are there already."""

    def __init__(self, layout: StepLayout, words: Words) -> None:
        self._layout = layout
        self._words = words
        self._table = self._part("block_table").reshape(-1, layout.columns)
        self._blocks: list[tuple[int, ...]] = [()] * layout.limits.max_sequences

    def write(self, batch: StepBatch) -> None:
        """Places behind a step's own tokens, rows and sequences belong to none."""
        num_tokens = len(batch.input_ids)
        self._fill("input_ids", batch.input_ids, 0)
        self._fill("feed_rows", batch.feed_rows, NO_ROW)
        self._fill("cumulative_sequence_length", batch.cumulative_sequence_length, num_tokens)
        self._fill("past_seqlens", batch.past_seqlens, NO_SEQUENCE)
        self._fill("logits_rows", batch.logits_rows, 0)
        for sequence, blocks in enumerate(batch.block_table):
            if self._blocks[sequence] != blocks:
                self._table[sequence, : len(blocks)] = blocks
                self._blocks[sequence] = blocks
        self._part("num_adjustments")[0] = len(batch.adjustments)
        self._part("num_targets")[0] = len(batch.targets)
        if batch.adjustments:
            self._begin("adjustment_rows", [entry.row for entry in batch.adjustments])
            self._begin("adjustment_tokens", [entry.token_id for entry in batch.adjustments])
            self._begin("divisors", np.array([entry.divisor for entry in batch.adjustments], np.float32).view(np.int32))
            self._begin("biases", np.array([entry.bias for entry in batch.adjustments], np.float32).view(np.int32))
        if batch.targets:
            self._begin("target_rows", [target.row for target in batch.targets])
            self._begin("target_tokens", [target.token_id for target in batch.targets])
        self._part("mask_slots")[:] = NO_ROW
        if batch.masks:
            slots = mask_slots(batch)
            self._part("mask_slots")[[mask.row for mask in batch.masks]] = [slots[mask.allowed] for mask in batch.masks]
            self._begin("masks", np.frombuffer(b"".join(slots), "<i4"))

    def _part(self, name: str) -> Words:
        region = self._layout[name]
        return self._words[region.start : region.end]

    def _begin(self, name: str, values: list[int] | tuple[int, ...] | Words) -> None:
        self._part(name)[: len(values)] = values

    def _fill(self, name: str, values: tuple[int, ...], rest: int) -> None:
        part = self._part(name)
        part[: len(values)] = values
        part[len(values) :] = rest
