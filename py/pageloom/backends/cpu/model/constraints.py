"""Masks and wanted logits of a step, on arrays: only steps that have some come here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pageloom.backends.cpu.model.step_arrays import Floats
from pageloom.engine.batch import RowCandidates, StepBatch

BARRED = np.float32(-1e30)
"""In place of -inf, which the kernels take for a fault: finite after every adjustment, and its exponential is 0."""
_LEAST = -1e20
"""Every logit below was barred."""


def mask_logits(logits: Floats, batch: StepBatch) -> None:
    """Bar what the masks do not allow. `logits` is `[max_sequences, vocab_size]`."""
    for mask in batch.masks:
        bits = np.unpackbits(np.frombuffer(mask.allowed, np.uint8), count=logits.shape[1], bitorder="little")
        logits[mask.row][bits == 0] = BARRED


def constrained_rows(logits: Floats, batch: StepBatch, rows: tuple[RowCandidates, ...]) -> tuple[RowCandidates, ...]:
    """`rows` with -inf for what was barred, and with the wanted logits."""
    wanted: list[list[float]] = [[] for _ in rows]
    for target in batch.targets:
        wanted[target.row].append(_told(float(logits[target.row, target.token_id])))
    return tuple(
        replace(row, logits=tuple(map(_told, row.logits)), target_logits=tuple(targets))
        for row, targets in zip(rows, wanted, strict=True)
    )


def _told(logit: float) -> float:
    return -np.inf if logit < _LEAST else logit
