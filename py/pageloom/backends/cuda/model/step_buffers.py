"""The integers of a step on the device, and its candidates back on the host, through pinned memory.

Every tensor stays where it is, since captured graphs read it there. Nothing that comes later waits for a copy.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pageloom.backends.cuda.model.step_layout import NO_ROW, NO_SEQUENCE, Arrangement, StepLayout, StepWriter
from pageloom.engine.batch import RowCandidates, RunnerLimits, StepBatch

STAGES = 4
"""Steps whose integers may be on their way to the device at once."""


class _Stage:
    """Pinned words on their way to the device."""

    def __init__(self, layout: StepLayout, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self.words = torch.zeros(layout.size, dtype=torch.int32, pin_memory=is_cuda)
        self.writer = StepWriter(layout, self.words.numpy())
        self.sent = torch.cuda.Event() if is_cuda else None


class StepBuffers:
    """As long as `limits` allow. `buffers[name]` is a part of the step, int32, by its name in `StepLayout`.

    - `candidates`: int32 `[max_sequences, 2 * max_candidates + 1]`: a row's ids, the bits of its logits, and those of
      its logsumexp.
    - `target_logits`: float32 `[max_targets]`.
    """

    def __init__(self, limits: RunnerLimits, device: torch.device) -> None:
        self._limits = limits
        self._is_cuda = device.type == "cuda"
        self._layout = StepLayout(limits)
        self._words = torch.zeros(self._layout.size, dtype=torch.int32, device=device)
        self._stages = [_Stage(self._layout, device) for _ in range(STAGES)]
        self._next_stage = 0
        shape = (limits.max_sequences, 2 * limits.max_candidates + 1)
        self.candidates = torch.zeros(shape, dtype=torch.int32, device=device)
        self.target_logits = torch.zeros(limits.max_targets, device=device)

    def __getitem__(self, name: str) -> torch.Tensor:
        region = self._layout[name]
        return self._words[region.start : region.end]

    def table(self, name: str) -> torch.Tensor:
        """int32 `[max_sequences, max_blocks_per_sequence]`."""
        return self[name].view(-1, self._layout.columns)

    @property
    def mask_words(self) -> int:
        """Words of one mask."""
        return self._layout.mask_words

    def clear(self) -> None:
        """Leave a step on the device that has neither tokens nor sequences."""
        self._words.zero_()
        self["past"].fill_(NO_SEQUENCE)
        self["prompt_past"].fill_(NO_SEQUENCE)
        self["feed_rows"].fill_(NO_ROW)
        self["mask_slots"].fill_(NO_ROW)

    def send(self, batch: StepBatch, arrangement: Arrangement) -> None:
        """Queue a step's integers."""
        stage = self._stages[self._next_stage]
        self._next_stage = (self._next_stage + 1) % STAGES
        if stage.sent is not None:
            stage.sent.synchronize()  # only where the host is STAGES steps ahead is there anything to wait for
        for region in stage.writer.write(batch, arrangement):
            place = slice(region.start, region.end)
            self._words[place].copy_(stage.words[place], non_blocking=True)
        if stage.sent is not None:
            stage.sent.record()

    def receive(self, batch: StepBatch) -> Readback:
        """Queue the copy of what the step leaves for its rows."""
        num_rows, num_targets = len(batch.logits_rows), len(batch.targets)
        candidates = self._copied(self.candidates[:num_rows])
        target_logits = self._copied(self.target_logits[:num_targets]) if num_targets else None
        arrived = None
        if self._is_cuda:
            arrived = torch.cuda.Event()
            arrived.record()
        return Readback(batch, self._limits.max_candidates, candidates, target_logits, arrived)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        host = torch.empty_like(tensor, device="cpu", pin_memory=self._is_cuda)
        return host.copy_(tensor, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Readback:
    """What a step leaves, on its way to the host. `arrived` is None where it is there already."""

    batch: StepBatch
    max_candidates: int
    candidates: torch.Tensor
    target_logits: torch.Tensor | None
    arrived: torch.cuda.Event | None

    async def rows(self) -> tuple[RowCandidates, ...]:
        """The candidates of the step's rows, once they are there. The event loop goes on until then."""
        if self.arrived is not None and not self.arrived.query():
            await asyncio.to_thread(self.arrived.synchronize)
        words: npt.NDArray[np.int32] = self.candidates.numpy()
        most, count = self.max_candidates, self.batch.num_candidates
        token_ids = words[:, :count].tolist()
        logits = words[:, most : most + count].view(np.float32).tolist()
        logsumexps = words[:, 2 * most :].view(np.float32)[:, 0].tolist()
        targets: list[list[float]] = [[] for _ in token_ids]
        if self.target_logits is not None:
            for target, logit in zip(self.batch.targets, self.target_logits.tolist(), strict=True):
                targets[target.row].append(logit)
        return tuple(
            RowCandidates(tuple(ids), tuple(values), logsumexp, tuple(wanted))
            for ids, values, logsumexp, wanted in zip(token_ids, logits, logsumexps, targets, strict=True)
        )
