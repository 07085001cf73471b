"""From logits to the best candidates of each row: adjustments, masks, exact top-k, log-sum-exp, wanted logits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.errors import InvalidArgument

CHUNK = 1024
GPU_LANES = 128
SOFTWARE_LISTS = 8
ADJUST_GROUPS = 16
TARGET_GROUPS = 4


@dataclass(frozen=True, slots=True)
class ConstraintBuffers:
    """`constraints` as `ConstraintLayout` packs it for `max_rows` rows; `target_logits` gets the wanted logits, f32."""

    constraints: Buffer
    target_logits: Buffer
    max_rows: int


def sampling_scratch_bytes(vocab_size: int, max_rows: int, max_candidates: int) -> int:
    """Bytes of the scratch buffer that `plan_sampling` takes for any number of candidates up to `max_candidates`."""
    return 4 * max_rows * sum(stored_lists(vocab_size, max_candidates)) * (2 * max_candidates + 2)


def stored_lists(vocab_size: int, num_candidates: int) -> list[int]:
    """How many lists of candidates a row each stage but the last leaves behind, first stage first."""
    fan_in = max(2, CHUNK // num_candidates)
    counts = [num_chunks(vocab_size)]
    while counts[-1] > fan_in:
        counts.append(-(-counts[-1] // fan_in))
    return counts


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
    constrained: ConstraintBuffers | None = None,
    lanes: int | None = None,
) -> list[PlannedDispatch]:
    """The `num_candidates` best tokens of each row of `logits`, f32 `[max_rows, vocab_size]`, after the step's
    adjustments and, with `constrained`, the masks of its rows; both change `logits` in place.

    `candidates` is u32 `[max_rows, 2 * max_candidates + 2]`: of each row the ids (best first, ties by lower id), at
    word `max_candidates` their logits as f32 bits, and at word `2 * max_candidates` the log-sum-exp of the whole row.
    Word 0 of a row is the greedy token that the next step's embedding reads. A NaN is below every other logit.
    `lanes` forces the invocations a list: 1 needs no barrier, a larger power of two shares a list (and sorts it, for
    more than one candidate).

    Raises `InvalidArgument` for more candidates than there are words or tokens for.
    """
    if not 1 <= num_candidates <= min(max_candidates, vocab_size):
        raise InvalidArgument(
            f"{num_candidates} candidates of {vocab_size} tokens; 1 to {min(max_candidates, vocab_size)} are allowed",
            param="num_candidates",
        )
    if lanes is None:
        lanes = 1 if info.adapter_class == "software" else GPU_LANES
    adjust = PlannedDispatch(
        ProgramKey.of("sampling/adjust.wgsl.j2", vocab_size=vocab_size), (logits, step), (ADJUST_GROUPS, 1, 1), "adjust"
    )
    shared: dict[str, ParameterValue] = {
        "k": num_candidates,
        "vocab_size": vocab_size,
        "max_candidates": max_candidates,
    }
    if lanes > 1 and 1 < num_candidates <= CHUNK // 2:
        search = _sort(logits, candidates, step, scratch, shared, max_rows)
    else:
        search = _search(logits, candidates, step, scratch, shared, max_rows, lanes)
    if constrained is None:
        return [adjust, *search]
    return [
        adjust,
        _mask(logits, step, constrained, vocab_size, max_rows),
        *search,
        _targets(logits, constrained, vocab_size),
    ]


def _mask(
    logits: Buffer, step: Buffer, constrained: ConstraintBuffers, vocab_size: int, max_rows: int
) -> PlannedDispatch:
    groups = -(-max_rows * -(-vocab_size // 32) // 64)
    key = ProgramKey.of("sampling/mask.wgsl.j2", vocab_size=vocab_size)
    return PlannedDispatch(key, (logits, step, constrained.constraints), split_grid(groups), "mask")


def _targets(logits: Buffer, constrained: ConstraintBuffers, vocab_size: int) -> PlannedDispatch:
    key = ProgramKey.of("sampling/targets.wgsl.j2", vocab_size=vocab_size, max_rows=constrained.max_rows)
    buffers = (logits, constrained.constraints, constrained.target_logits)
    return PlannedDispatch(key, buffers, (TARGET_GROUPS, 1, 1), "wanted logits")


def _search(
    logits: Buffer,
    candidates: Buffer,
    step: Buffer,
    scratch: Buffer,
    shared: Mapping[str, ParameterValue],
    max_rows: int,
    lanes: int,
) -> list[PlannedDispatch]:
    """One candidate after another, in each chunk of a row and then among those of all chunks."""
    lists_per_group = SOFTWARE_LISTS if lanes == 1 else 1
    chunks = num_chunks(int(shared["vocab_size"]))

    def plan(stage: str, buffers: tuple[Buffer, ...], num_lists: int) -> PlannedDispatch:
        key = ProgramKey.of(
            "sampling/top_k.wgsl.j2",
            **shared,
            stage=stage,
            lanes=lanes,
            lists_per_group=lists_per_group,
            num_chunks=chunks,
            chunk=CHUNK,
        )
        return PlannedDispatch(key, buffers, split_grid(-(-num_lists // lists_per_group)), f"top-k {stage}")

    return [
        plan("chunk", (logits, scratch, step), max_rows * chunks),
        plan("merge", (scratch, candidates, step), max_rows),
    ]


def _sort(
    logits: Buffer,
    candidates: Buffer,
    step: Buffer,
    scratch: Buffer,
    shared: Mapping[str, ParameterValue],
    max_rows: int,
) -> list[PlannedDispatch]:
    """All candidates of a chunk by one sort, then of as many lists as fill a sort, until one list a row is left."""
    k = int(shared["k"])
    fan_in, list_words = CHUNK // k, 2 * k + 2

    def plan(stage: str, num_lists: int, joined: int, source: int, target: int) -> PlannedDispatch:
        key = ProgramKey.of(
            "sampling/sort.wgsl.j2",
            **shared,
            stage=stage,
            capacity=CHUNK,
            num_lists=num_lists,
            fan_in=joined,
            source=source,
            target=target,
        )
        ends = {"chunk": (logits,), "merge": (), "last": (candidates,)}[stage]
        groups = max_rows * -(-num_lists // joined)
        return PlannedDispatch(key, (scratch, step, *ends), split_grid(groups), f"sort {stage}")

    counts = stored_lists(int(shared["vocab_size"]), k)
    starts = [0, *itertools.accumulate(max_rows * count * list_words for count in counts)]
    return [
        plan("chunk", counts[0], 1, 0, 0),
        *(plan("merge", count, fan_in, starts[i], starts[i + 1]) for i, count in enumerate(counts[:-1])),
        plan("last", counts[-1], fan_in, starts[len(counts) - 1], 0),
    ]
