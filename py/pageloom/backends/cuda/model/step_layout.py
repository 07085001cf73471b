"""Where the integers of a step lie, in 32-bit words, and how a `StepBatch` becomes them.

Sequences with one new token come first, a row of activations each, and have `max_sequences` rows set aside; the tokens
of all others follow. So both are always computed in the same way, whatever else is in the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`singles` and `prompts`: the sequences with one new token, and those with more; `rows`: the row of each token;
    `prompt_tokens`: how many of them belong to prompts."""

    singles: Sequence[int]
    prompts: Sequence[int]
    rows: Sequence[int]
    prompt_tokens: int


def arrange(batch: StepBatch, first_prompt_row: int) -> Arrangement:
    """The rows of a step's tokens."""
    num_tokens, num_sequences = len(batch.input_ids), len(batch.past_seqlens)
    ends = batch.cumulative_sequence_length
    if num_tokens == num_sequences and ends == tuple(range(num_sequences + 1)):
        return Arrangement(range(num_sequences), (), range(num_tokens), 0)
    counts = [end - start for start, end in itertools.pairwise(ends)]
    singles = [sequence for sequence, count in enumerate(counts) if count == 1]
    prompts = [sequence for sequence, count in enumerate(counts) if count > 1]
    next_single, next_prompt = itertools.count(), itertools.count(first_prompt_row)
    rows = [next(next_single if count == 1 else next_prompt) for count in counts for _ in range(count)]
    return Arrangement(singles, prompts, rows, num_tokens - len(singles))


class StepLayout:
    """What lies where, each part by its name. A step copies the stretches that it has need of."""

    def __init__(self, limits: RunnerLimits) -> None:
        sequences = limits.max_sequences
        rows = sequences + limits.max_tokens
        self.limits = limits
        self.columns = limits.max_blocks_per_sequence
        self.mask_words = mask_bytes(limits.vocab_size) // 4
        lengths = {
            "input_ids": rows,
            "feed_rows": rows,
            "past": sequences,
            "prompt_past": sequences,
            "prompt_starts": sequences + 1,
            "logits_rows": sequences,
            "mask_slots": sequences,
            "num_adjustments": 1,
            "num_targets": 1,
            "table": sequences * self.columns,
            "prompt_table": sequences * self.columns,
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

    def begin(self, name: str, length: int) -> Region:
        """The first words of a part."""
        start = self[name].start
        return Region(start, start + length)


def mask_slots(batch: StepBatch) -> dict[bytes, int]:
    """The place of each different mask of a step."""
    slots: dict[bytes, int] = {}
    for mask in batch.masks:
        slots.setdefault(mask.allowed, len(slots))
    return slots


class StepWriter:
    """Writes steps to words on the host, and remembers which rows of the block tables are there already."""

    def __init__(self, layout: StepLayout, words: Words) -> None:
        self._layout = layout
        self._words = words
        sequences = layout.limits.max_sequences
        self._blocks: dict[str, list[tuple[int, ...]]] = {name: [()] * sequences for name in ("table", "prompt_table")}

    def write(self, batch: StepBatch, arrangement: Arrangement) -> list[Region]:
        """What has to be copied of it. Places behind a step's own tokens, rows and sequences belong to none."""
        layout, rows = self._layout, arrangement.rows
        self._place("input_ids", rows, batch.input_ids, 0)
        self._place("feed_rows", rows, batch.feed_rows, NO_ROW)
        self._fill("past", [batch.past_seqlens[sequence] for sequence in arrangement.singles], NO_SEQUENCE)
        self._fill("logits_rows", [rows[token] for token in batch.logits_rows], 0)
        self._part("mask_slots")[:] = NO_ROW
        self._part("num_adjustments")[0] = len(batch.adjustments)
        self._part("num_targets")[0] = len(batch.targets)
        self._write_table("table", batch, arrangement.singles)
        table = layout.begin("table", len(arrangement.singles) * layout.columns)
        copied = [Region(0, table.end)]
        if arrangement.prompts:
            copied.append(self._write_prompts(batch, arrangement.prompts))
        if batch.adjustments or batch.targets:
            self._write_entries(batch)
            copied.append(Region(layout["adjustment_rows"].start, layout["target_tokens"].end))
        if batch.masks:
            slots = mask_slots(batch)
            self._part("mask_slots")[[mask.row for mask in batch.masks]] = [slots[mask.allowed] for mask in batch.masks]
            self._begin("masks", np.frombuffer(b"".join(slots), "<i4"))
            copied.append(layout.begin("masks", len(slots) * layout.mask_words))
        return copied

    def _write_prompts(self, batch: StepBatch, prompts: Sequence[int]) -> Region:
        lengths = itertools.pairwise(batch.cumulative_sequence_length)
        counts = [end - start for start, end in lengths]
        starts = list(itertools.accumulate((counts[sequence] for sequence in prompts), initial=0))
        self._fill("prompt_starts", starts, starts[-1])
        self._fill("prompt_past", [batch.past_seqlens[sequence] for sequence in prompts], NO_SEQUENCE)
        self._write_table("prompt_table", batch, prompts)
        return self._layout.begin("prompt_table", len(prompts) * self._layout.columns)

    def _write_table(self, name: str, batch: StepBatch, sequences: Iterable[int]) -> None:
        there, table = self._blocks[name], self._part(name).reshape(-1, self._layout.columns)
        for place, sequence in enumerate(sequences):
            blocks = batch.block_table[sequence]
            if there[place] != blocks:
                table[place, : len(blocks)] = blocks
                there[place] = blocks

    def _write_entries(self, batch: StepBatch) -> None:
        self._begin("adjustment_rows", [entry.row for entry in batch.adjustments])
        self._begin("adjustment_tokens", [entry.token_id for entry in batch.adjustments])
        self._begin("divisors", np.array([entry.divisor for entry in batch.adjustments], np.float32).view(np.int32))
        self._begin("biases", np.array([entry.bias for entry in batch.adjustments], np.float32).view(np.int32))
        self._begin("target_rows", [target.row for target in batch.targets])
        self._begin("target_tokens", [target.token_id for target in batch.targets])

    def _part(self, name: str) -> Words:
        region = self._layout[name]
        return self._words[region.start : region.end]

    def _place(self, name: str, rows: Sequence[int], values: Sequence[int], rest: int) -> None:
        part = self._part(name)
        part[:] = rest
        part[np.asarray(rows)] = values

    def _begin(self, name: str, values: Sequence[int] | Words) -> None:
        self._part(name)[: len(values)] = values

    def _fill(self, name: str, values: Sequence[int], rest: int) -> None:
        part = self._part(name)
        part[: len(values)] = values
        part[len(values) :] = rest
