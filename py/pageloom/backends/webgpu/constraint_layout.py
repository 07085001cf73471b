"""The constraint buffer: masks and wanted logits of a step's rows, written only for steps that have some.

u32 words, offsets in words:

| words | content |
|---|---|
| 1 | T, how many logits are wanted |
| max_sequences | for each row where its mask begins; 0 for a row without |
| 2 * T | (row, token id) of each wanted logit |
| ceil(vocab_size / 32) a mask | bit t % 32 of word t // 32 is set where token t is allowed; equal masks are one |
"""

from __future__ import annotations

import array
from dataclasses import dataclass

from pageloom.engine.batch import RunnerLimits, StepBatch, mask_bytes


@dataclass(frozen=True, slots=True)
class ConstraintLayout:
    """Packs the masks and targets of a `StepBatch` for given limits."""

    limits: RunnerLimits

    @property
    def max_words(self) -> int:
        """Words of the most that the limits allow."""
        limits = self.limits
        masks = limits.max_sequences * mask_bytes(limits.vocab_size) // 4
        return 1 + limits.max_sequences + 2 * limits.max_targets + masks

    def pack(self, batch: StepBatch) -> bytes:
        starts = [0] * self.limits.max_sequences
        offset = 1 + len(starts) + 2 * len(batch.targets)
        offsets: dict[bytes, int] = {}
        for mask in batch.masks:
            if mask.allowed not in offsets:
                offsets[mask.allowed] = offset
                offset += len(mask.allowed) // 4
            starts[mask.row] = offsets[mask.allowed]
        words = array.array("I", [len(batch.targets), *starts])
        for target in batch.targets:
            words.extend((target.row, target.token_id))
        return b"".join((words.tobytes(), *offsets))
