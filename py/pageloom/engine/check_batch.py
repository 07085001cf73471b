"""The contract of `StepBatch`, checked before anything of it reaches a device."""

from __future__ import annotations

import itertools

from pageloom.engine.batch import RunnerLimits, StepBatch, mask_bytes
from pageloom.errors import InvalidArgument


def check_batch(batch: StepBatch, limits: RunnerLimits) -> None:
    """Raise `InvalidArgument`, naming the field, for a batch that no Runner of these limits may run."""
    num_tokens, num_sequences = len(batch.input_ids), len(batch.past_seqlens)
    _check_counts(batch, limits, num_tokens, num_sequences)
    _check_tokens(batch, limits)
    for sequence, (start, end) in enumerate(itertools.pairwise(batch.cumulative_sequence_length)):
        _check_sequence(batch, limits, sequence, end - start)
    _check_rows(batch, limits, num_tokens)
    _check_masks(batch, limits)
    _check_targets(batch, limits)


def _require(condition: bool, message: str, param: str) -> None:
    """For what is checked once a step: the message is made in any case."""
    if not condition:
        raise InvalidArgument(message, param=param)


def _check_counts(batch: StepBatch, limits: RunnerLimits, num_tokens: int, num_sequences: int) -> None:
    _require(
        1 <= num_tokens <= limits.max_tokens,
        f"a step has {num_tokens} tokens; 1 to {limits.max_tokens} are allowed",
        "input_ids",
    )
    _require(
        1 <= num_sequences <= limits.max_sequences,
        f"a step has {num_sequences} sequences; 1 to {limits.max_sequences} are allowed",
        "past_seqlens",
    )
    _require(
        len(batch.feed_rows) == num_tokens,
        f"feed_rows has {len(batch.feed_rows)} entries for {num_tokens} tokens",
        "feed_rows",
    )
    cumulative = batch.cumulative_sequence_length
    if (
        len(cumulative) != num_sequences + 1
        or cumulative[0] != 0
        or cumulative[-1] != num_tokens
        or any(start > end for start, end in itertools.pairwise(cumulative))
    ):
        raise InvalidArgument(
            f"cumulative_sequence_length {cumulative} is no prefix sum of {num_sequences} lengths up to {num_tokens}",
            param="cumulative_sequence_length",
        )
    _require(
        len(batch.block_table) == num_sequences,
        f"block_table has {len(batch.block_table)} rows for {num_sequences} sequences",
        "block_table",
    )


def _check_tokens(batch: StepBatch, limits: RunnerLimits) -> None:
    for token_id, feed_row in zip(batch.input_ids, batch.feed_rows, strict=True):
        if not -1 <= feed_row < limits.max_sequences:
            raise InvalidArgument(
                f"feed row {feed_row} is not -1 or a row below {limits.max_sequences}", param="feed_rows"
            )
        if feed_row < 0 and not 0 <= token_id < limits.vocab_size:
            raise InvalidArgument(
                f"token id {token_id} is outside the vocabulary of {limits.vocab_size}", param="input_ids"
            )


def _check_sequence(batch: StepBatch, limits: RunnerLimits, sequence: int, new_tokens: int) -> None:
    past, blocks = batch.past_seqlens[sequence], batch.block_table[sequence]
    if past < 0:
        raise InvalidArgument(f"sequence {sequence} has {past} cached tokens", param="past_seqlens")
    if len(blocks) > limits.max_blocks_per_sequence:
        raise InvalidArgument(
            f"sequence {sequence} has {len(blocks)} blocks; at most {limits.max_blocks_per_sequence} are allowed",
            param="block_table",
        )
    needed = -(-(past + new_tokens) // limits.block_size)
    if new_tokens and len(blocks) < needed:
        raise InvalidArgument(
            f"sequence {sequence} needs {needed} blocks for {past} cached and {new_tokens} new tokens, not "
            f"{len(blocks)}",
            param="block_table",
        )
    for block in (min(blocks), max(blocks)) if blocks else ():
        if not 0 <= block < limits.num_blocks:
            raise InvalidArgument(
                f"block {block} of sequence {sequence} is outside the pool of {limits.num_blocks}", param="block_table"
            )


def _check_rows(batch: StepBatch, limits: RunnerLimits, num_tokens: int) -> None:
    rows = batch.logits_rows
    if len(rows) > limits.max_sequences or any(not 0 <= row < num_tokens for row in rows):
        raise InvalidArgument(
            f"logits_rows {rows} are not at most {limits.max_sequences} indices of the {num_tokens} tokens",
            param="logits_rows",
        )
    _require(
        1 <= batch.num_candidates <= limits.max_candidates,
        f"{batch.num_candidates} candidates are asked for; 1 to {limits.max_candidates} are allowed",
        "num_candidates",
    )
    _require(
        len(batch.adjustments) <= limits.max_adjustments,
        f"a step has {len(batch.adjustments)} logit adjustments; at most {limits.max_adjustments} are allowed",
        "adjustments",
    )
    for entry in batch.adjustments:
        _require(
            0 <= entry.row < len(rows) and 0 <= entry.token_id < limits.vocab_size,
            f"an adjustment names row {entry.row} of {len(rows)} and token {entry.token_id} of {limits.vocab_size}",
            "adjustments",
        )


def _check_masks(batch: StepBatch, limits: RunnerLimits) -> None:
    rows = [mask.row for mask in batch.masks]
    _require(
        all(0 <= row < len(batch.logits_rows) for row in rows) and rows == sorted(set(rows)),
        f"the masks are of the rows {rows}; they are ascending and below {len(batch.logits_rows)}",
        "masks",
    )
    num_bytes = mask_bytes(limits.vocab_size)
    for mask in batch.masks:
        _require(
            len(mask.allowed) == num_bytes and any(mask.allowed),
            f"the mask of row {mask.row} has {len(mask.allowed)} bytes; it has {num_bytes} and allows some token",
            "masks",
        )


def _check_targets(batch: StepBatch, limits: RunnerLimits) -> None:
    rows = [target.row for target in batch.targets]
    _require(
        len(rows) <= limits.max_targets and rows == sorted(rows),
        f"a step has {len(rows)} targets; at most {limits.max_targets} are allowed, by ascending row",
        "targets",
    )
    for target in batch.targets:
        _require(
            0 <= target.row < len(batch.logits_rows) and 0 <= target.token_id < limits.vocab_size,
            f"a target names row {target.row} of {len(batch.logits_rows)} and token {target.token_id} of "
            f"{limits.vocab_size}",
            "targets",
        )
