"""The integers of a step, in arrays that every bound call reads anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pageloom.engine.batch import RowCandidates, RunnerLimits, StepBatch

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Adjustments:
    """The `LogitAdjustment`s of a step, field by field; `count` is int32[1]."""

    rows: Integers
    tokens: Integers
    divisors: Floats
    biases: Floats
    count: Integers


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a step leaves: `[max_sequences, max_candidates]`, and the logsumexp of each row."""

    token_ids: Integers
    logits: Floats
    logsumexp: Floats


class StepArrays:
    """As long as `limits` allow; what lies behind a step's own entries is not read."""

    def __init__(self, limits: RunnerLimits) -> None:
        sequences, most = limits.max_sequences, limits.max_adjustments
        self.input_ids = np.zeros(limits.max_tokens, np.int32)
        self.num_tokens = np.zeros(1, np.int32)
        self.cumulative_sequence_length = np.zeros(sequences + 1, np.int32)
        self.past_seqlens = np.zeros(sequences, np.int32)
        self.block_table = np.zeros((sequences, limits.max_blocks_per_sequence), np.int32)
        self.logits_rows = np.zeros(sequences, np.int32)
        self.num_logits_rows = np.zeros(1, np.int32)
        self.num_candidates = np.zeros(1, np.int32)
        self.adjustments = Adjustments(
            np.zeros(most, np.int32),
            np.zeros(most, np.int32),
            np.zeros(most, np.float32),
            np.zeros(most, np.float32),
            np.zeros(1, np.int32),
        )
        self.candidates = Candidates(
            np.zeros((sequences, limits.max_candidates), np.int32),
            np.zeros((sequences, limits.max_candidates), np.float32),
            np.zeros(sequences, np.float32),
        )

    def write(self, batch: StepBatch) -> None:
        """Take over a step. Fed tokens come from the candidates that the last step left."""
        num_tokens, num_sequences = len(batch.input_ids), len(batch.past_seqlens)
        self.num_tokens[0] = num_tokens
        self.input_ids[:num_tokens] = batch.input_ids
        for token, row in enumerate(batch.feed_rows):
            if row >= 0:
                self.input_ids[token] = self.candidates.token_ids[row, 0]
        self.cumulative_sequence_length[: num_sequences + 1] = batch.cumulative_sequence_length
        self.cumulative_sequence_length[num_sequences + 1 :] = num_tokens
        self.past_seqlens[:num_sequences] = batch.past_seqlens
        self.past_seqlens[num_sequences:] = 0
        for sequence, blocks in enumerate(batch.block_table):
            self.block_table[sequence, : len(blocks)] = blocks
        self.num_logits_rows[0] = len(batch.logits_rows)
        self.logits_rows[: len(batch.logits_rows)] = batch.logits_rows
        self.num_candidates[0] = batch.num_candidates
        self.adjustments.count[0] = len(batch.adjustments)
        for index, entry in enumerate(batch.adjustments):
            self.adjustments.rows[index] = entry.row
            self.adjustments.tokens[index] = entry.token_id
            self.adjustments.divisors[index] = entry.divisor
            self.adjustments.biases[index] = entry.bias

    def read(self) -> tuple[RowCandidates, ...]:
        """The candidates of the step that ran last."""
        rows, count = int(self.num_logits_rows[0]), int(self.num_candidates[0])
        ids, logits = self.candidates.token_ids[:rows, :count], self.candidates.logits[:rows, :count]
        return tuple(
            RowCandidates(tuple(row_ids), tuple(row_logits), logsumexp)
            for row_ids, row_logits, logsumexp in zip(
                ids.tolist(), logits.tolist(), self.candidates.logsumexp[:rows].tolist(), strict=True
            )
        )
