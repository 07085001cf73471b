"""The best tokens of rows of logits, best first and of equal ones the lowest id first."""

from __future__ import annotations

import torch

from pageloom.backends.cuda.geometry import power_of_two
from pageloom.backends.cuda.model import kernels
from pageloom.backends.cuda.model.step_buffers import StepBuffers

LOGITS_AT_ONCE = 8192
ENTRIES_AT_ONCE = 256
_ALL_BITS = 0xFFFFFFFF


def find_best(logits: torch.Tensor, candidates: torch.Tensor, max_candidates: int) -> None:
    """The best token of each row of float32 `logits`, to the first rows of `candidates` (see `StepBuffers`)."""
    rows, vocabulary = logits.shape
    block = min(LOGITS_AT_ONCE, power_of_two(vocabulary))
    chunks = -(-vocabulary // block)
    bests, sums = (torch.empty((rows, chunks), device=logits.device) for _ in range(2))
    ids = torch.empty((rows, chunks), dtype=torch.int32, device=logits.device)
    kernels.best_of_chunk_kernel[(rows, chunks)](logits, bests, ids, sums, vocabulary, BLOCK=block, num_warps=8)
    kernels.best_of_row_kernel[(rows,)](
        bests, ids, sums, candidates, candidates.stride(0), max_candidates, chunks, BLOCK=power_of_two(chunks)
    )


def find_candidates(logits: torch.Tensor, step: StepBuffers, max_candidates: int) -> None:
    """The `max_candidates` best tokens of each row of float32 `logits`, and the logits of the step's targets, after its
    adjustments and masks."""
    rows, vocabulary = logits.shape
    divisors, biases = (step[name].view(torch.float32) for name in ("divisors", "biases"))
    kernels.adjust_kernel[_grid(divisors, ENTRIES_AT_ONCE)](
        logits, step["adjustment_rows"], step["adjustment_tokens"], divisors, biases, step["num_adjustments"],
        vocabulary, BLOCK=ENTRIES_AT_ONCE,
    )  # fmt: skip
    kernels.mask_kernel[(rows, *_grid(logits[0], LOGITS_AT_ONCE))](
        logits, step["mask_slots"], step["masks"], step.mask_words, vocabulary, BLOCK=LOGITS_AT_ONCE
    )
    kernels.target_kernel[_grid(step.target_logits, ENTRIES_AT_ONCE)](
        logits, step["target_rows"], step["target_tokens"], step["num_targets"], step.target_logits, vocabulary,
        BLOCK=ENTRIES_AT_ONCE,
    )  # fmt: skip
    best = torch.topk(_keys(logits), max_candidates, sorted=True).values
    token_ids = _ALL_BITS - (best & _ALL_BITS)
    target = step.candidates[:rows]
    target[:, :max_candidates] = token_ids
    target[:, max_candidates : 2 * max_candidates] = logits.gather(1, token_ids).view(torch.int32)
    target[:, 2 * max_candidates] = torch.logsumexp(logits, dim=1).view(torch.int32)


def _grid(tensor: torch.Tensor, block: int) -> tuple[int]:
    return (max(1, -(-len(tensor) // block)),)


def _keys(logits: torch.Tensor) -> torch.Tensor:
    """int64, all different, in the order of candidates: the logit's bits, made ascending, above those of ~id."""
    bits = (logits + 0.0).view(torch.int32).long()  # which makes -0 a 0
    ascending = torch.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))
    ids = torch.arange(logits.shape[1], device=logits.device)
    return (ascending << 32) | (_ALL_BITS - ids)
