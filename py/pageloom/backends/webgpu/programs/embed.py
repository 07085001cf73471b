"""Rows picked by index: token embeddings, and the activations whose logits a step wants."""

from __future__ import annotations

from pageloom.backends.webgpu.device import Buffer, DeviceInfo
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.linear import weight_parameters
from pageloom.backends.webgpu.weights import DeviceWeight
from pageloom.errors import NotSupported

WORKGROUP_SIZE = 64


def plan_embed(
    info: DeviceInfo,
    weight: DeviceWeight,
    output: Buffer,
    step: Buffer,
    previous_candidates: Buffer,
    *,
    candidate_words: int,
    scale: float,
    max_tokens: int,
    label: str = "embed",
) -> list[PlannedDispatch]:
    """output[t] = scale * weight[id of token t], f32 `[max_tokens, in_features]`. One dispatch a shard.

    The id is TOKEN_IDS[t], or, where FEED_ROWS[t] >= 0, the first word of that row of `previous_candidates` (u32,
    `candidate_words` words a row), which a sampling program wrote. An id beyond the vocabulary leaves its row alone.
    """
    planned = []
    grid = split_grid(-(-max_tokens * 4 * weight.layout.chunks // WORKGROUP_SIZE))
    for shard in weight.shards:
        key = ProgramKey.of(
            "linear/embed.wgsl.j2",
            **weight_parameters(info, weight),
            scale=float(scale),
            candidate_words=candidate_words,
            first_row=shard.rows.start,
            shard_rows=len(shard.rows),
        )
        planned.append(PlannedDispatch(key, (*shard.buffers, output, step, previous_candidates), grid, label))
    return planned


def plan_select_rows(
    input: Buffer, output: Buffer, step: Buffer, *, width: int, max_rows: int, label: str = "select_rows"
) -> list[PlannedDispatch]:
    """output[r] = input[LOGITS_ROWS[r]], over rows of f32 `[_, width]`."""
    if width % 4:
        raise NotSupported(f"rows of {width} channels; a multiple of 4 is needed")
    key = ProgramKey.of("linear/select_rows.wgsl.j2", width=width)
    return [PlannedDispatch(key, (input, output, step), split_grid(-(-max_rows * width // 4 // WORKGROUP_SIZE)), label)]
