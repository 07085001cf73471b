"""A sliding window cache while new rows come: the rows that it held and the new ones side by side.

The cache holds the latest positions only, and which of the old rows fall out depends on how many new ones come. All of
them are attended before that, so they are laid out in a scratch cache of capacity + rows, whose first row is the oldest
position that is still held. Masks depend on differences of positions alone; bias and rotary positions are moved.
"""

from __future__ import annotations

import numpy as np
from pageloom_cpu import Sequences

from pageloom.attention.group_query.reference import Step, sequence_step
from pageloom.attention.group_query.spec import SIDES
from pageloom.attention.numerics.dtypes import Array
from pageloom.backends.cpu.operators.group_query_call import PAST, GroupQueryCall


class SlidingCache:
    """Scratch caches with the integers that go with them; `load` before the kernels, `keep` after them."""

    def __init__(self, call: GroupQueryCall, presents: list[Array]) -> None:
        shape, inputs = call.shape, call.inputs
        self._call = call
        self._presents = presents
        self._pasts = [inputs[PAST[side]] for side in SIDES]
        batch, rows = shape.batch_size, shape.sequence_length
        self._rows = shape.past_length + rows
        self.caches = [np.zeros((*past.shape[:2], self._rows, past.shape[3]), past.dtype) for past in self._pasts]
        self._totals = np.zeros(batch, np.int32)
        self._given_bias = inputs.get("attention_bias")
        self.bias: Array | None = None
        if self._given_bias is not None:
            heads = self._given_bias.shape[1]
            self.bias = np.zeros((batch, heads, rows, self._rows), self._given_bias.dtype)
        self.positions = np.zeros((batch, rows), np.int64) if shape.rotary_dim else None
        self.sequences = Sequences(
            batch,
            rows,
            query_lengths=inputs.get("query_seqlens"),
            total_lengths=self._totals,
            first_position=0 if shape.first_prompt else None,
            clamp_first=True,
        )

    def load(self) -> None:
        """Bring the rows that each sequence still holds, and the integers, to their places."""
        for row, step in enumerate(self._steps()):
            resident = self._resident(step.past)
            self._totals[row] = resident + min(step.new, step.total - step.past)
            for cache, held in zip(self.caches, self._pasts, strict=True):
                cache[row, :, :resident] = held[row, :, :resident]
            first = step.past - resident
            if self.bias is not None and self._given_bias is not None:
                columns = self._given_bias[row if len(self._given_bias) > 1 else 0][..., first : first + self._rows]
                self.bias[row, ..., : columns.shape[-1]] = columns
            if self.positions is not None:
                self._place_positions(self.positions[row], step)

    def keep(self) -> None:
        """Store the latest rows of each sequence in the present."""
        for row, step in enumerate(self._steps()):
            kept, end = self._resident(step.total), int(self._totals[row])
            for present, cache in zip(self._presents, self.caches, strict=True):
                present[row, :, :kept] = cache[row, :, end - kept : end]

    def _resident(self, tokens: int) -> int:
        return self._call.spec.resident_length(tokens, self._call.shape.past_length)

    def _steps(self) -> list[Step]:
        shape, inputs = self._call.shape, self._call.inputs
        return [sequence_step(shape, inputs, row) for row in range(shape.batch_size)]

    def _place_positions(self, positions: Array, step: Step) -> None:
        """The rotary positions of a sequence's rows."""
        given, steps = self._call.inputs.get("position_ids"), np.arange(len(positions))
        if given is None:
            positions[:] = step.past + steps
        elif self._call.shape.first_prompt:
            positions[:] = given[0, 0] + steps
        else:
            positions[:] = given[step.row]
