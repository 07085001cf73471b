"""From logits to the best candidates of each row: adjustments, exact top-k, log-sum-exp."""

from __future__ import annotations

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.errors import InvalidArgument

CHUNK = 1024
GPU_LANES = 128
SOFTWARE_LISTS = 8
ADJUST_GROUPS = 16


def sampling_scratch_bytes(vocab_size: int, max_rows: int, max_candidates: int) -> int:
    """Bytes of the scratch buffer that `plan_sampling` takes for any number of candidates up to `max_candidates`."""
    return 4 * max_rows * num_chunks(vocab_size) * (2 * max_candidates + 2)


def num_chunks(vocab_size: int) -> int:
    return -(-vocab_size // CHUNK)


def plan_sampling(
    info: DeviceInfo,
    logits: Buffer,
    candidates: Buffer,
    step: Buffer,
    scratch: Buffer,
    *,
    vocab_size: int,
    max_rows: int,
    num_candidates: int,
    max_candidates: int,
    lanes: int | None = None,
) -> list[PlannedDispatch]:
    """The `num_candidates` best tokens of each row of `logits`, f32 `[max_rows, vocab_size]`, after the step's
    adjustments, which are made in place.

    `candidates` is u32 `[max_rows, 2 * max_candidates + 2]`: of each row the ids (best first, ties by lower id), at
    word `max_candidates` their logits as f32 bits, and at word `2 * max_candidates` the log-sum-exp of the whole row.
    Word 0 of a row is the greedy token that the next step's embedding reads. A NaN is below every other logit.
    `lanes` forces the invocations a list: 1 needs no barrier, a larger power of two shares a list.

    Raises `InvalidArgument` for more candidates than there are words or tokens for.
    """
    if not 1 <= num_candidates <= min(max_candidates, vocab_size):
        raise InvalidArgument(
            f"{num_candidates} candidates of {vocab_size} tokens; 1 to {min(max_candidates, vocab_size)} are allowed",
            param="num_candidates",
        )
    if lanes is None:
        lanes = 1 if info.adapter_class == "software" else GPU_LANES
    lists_per_group = SOFTWARE_LISTS if lanes == 1 else 1
    shared: dict[str, ParameterValue] = {
        "k": num_candidates,
        "lanes": lanes,
        "lists_per_group": lists_per_group,
        "vocab_size": vocab_size,
        "num_chunks": num_chunks(vocab_size),
        "chunk": CHUNK,
        "max_candidates": max_candidates,
    }

    def plan(stage: str, buffers: tuple[Buffer, ...], num_lists: int) -> PlannedDispatch:
        key = ProgramKey.of("sampling/top_k.wgsl.j2", stage=stage, **shared)
        return PlannedDispatch(key, buffers, split_grid(-(-num_lists // lists_per_group)), f"top-k {stage}")

    adjust = ProgramKey.of("sampling/adjust.wgsl.j2", vocab_size=vocab_size)
    return [
        PlannedDispatch(adjust, (logits, step), (ADJUST_GROUPS, 1, 1), "adjust logits"),
        plan("chunk", (logits, scratch, step), max_rows * num_chunks(vocab_size)),
        plan("merge", (scratch, candidates, step), max_rows),
    ]
