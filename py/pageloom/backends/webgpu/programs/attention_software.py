"""Attention without barriers: for adapters that run on a CPU, and for whatever the gpu programs cannot do."""

from __future__ import annotations

from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_form import AttentionBuffers, AttentionForm, bound

WORKGROUP = 16
KEYS_PER_STEP = 4
MAX_HEADS_PER_THREAD = 4


def heads_per_thread(form: AttentionForm) -> int:
    """Query heads of one KV head that share its rows in a thread."""
    return max(heads for heads in range(1, MAX_HEADS_PER_THREAD + 1) if form.group % heads == 0)


def plan_software_attention(form: AttentionForm, buffers: AttentionBuffers, *, max_tokens: int) -> PlannedDispatch:
    """One dispatch, a thread for `heads_per_thread` heads of a token. Takes `sums` where the output is not f32."""
    heads = heads_per_thread(form)
    key = ProgramKey.of(
        "paged_attention/software.wgsl.j2",
        **form.parameters(),
        heads_per_thread=heads,
        keys_per_step=KEYS_PER_STEP,
        workgroup_size=WORKGROUP,
    )
    threads = max_tokens * form.num_heads // heads
    return PlannedDispatch(
        key,
        bound(
            buffers.query,
            buffers.key_cache,
            buffers.value_cache,
            buffers.output,
            buffers.step,
            None if form.output_kind == "f32" else buffers.sums,
            buffers.factors,
            buffers.log_sum_exp,
        ),
        split_grid(-(-threads // WORKGROUP)),
        "attention",
    )
