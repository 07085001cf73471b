"""GroupQueryAttention bound to the compiled kernels."""

from __future__ import annotations

import numpy as np
from pageloom_cpu import Append, Attention, Sequences

from pageloom.attention.group_query.check import KvMode
from pageloom.attention.group_query.reference import sequence_step
from pageloom.attention.group_query.spec import SIDES
from pageloom.attention.numerics.dtypes import Array
from pageloom.backends.cpu.operators.bound import KernelCall, Run
from pageloom.backends.cpu.operators.group_query_call import PAST, PRESENT, GroupQueryCall
from pageloom.backends.cpu.operators.kernel_types import in_turn, sinks_of
from pageloom.backends.cpu.operators.sliding_cache import SlidingCache
from pageloom.backends.cpu.tiers import CompiledTier, kernel_path


def bind(call: GroupQueryCall, tier: CompiledTier | None) -> KernelCall:
    """What brings the past to where it is appended to, what prepares Q and stores K and V, and attention over them."""
    spec, shape, inputs, outputs = call.spec, call.shape, call.inputs, call.outputs()
    before: list[Run] = []
    after: list[Run] = []
    caches = [outputs[PRESENT[side]] for side in SIDES]
    bias, positions = inputs.get("attention_bias"), _positions(call)
    if spec.sliding_window_cache:
        sliding = SlidingCache(call, caches)
        before, after = [sliding.load], [sliding.keep]
        caches, bias, positions, sequences = sliding.caches, sliding.bias, sliding.positions, sliding.sequences
    else:
        sequences = Sequences(
            shape.batch_size,
            shape.sequence_length,
            query_lengths=inputs.get("query_seqlens"),
            total_lengths=inputs["seqlens_k"],
            total_offset=1,
            first_position=0 if shape.first_prompt else None,
            clamp_first=True,
        )
        if call.in_place != frozenset(SIDES):
            before = [lambda: _copy_past(call, outputs)]
    query, append = _bind_append(call, sequences, caches, positions)
    attention = Attention(
        sequences,
        query,
        outputs["output"].reshape(shape.batch_size, shape.sequence_length, spec.num_heads, shape.head_size),
        *caches,
        k_scale=inputs.get("k_scale"),
        v_scale=inputs.get("v_scale"),
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        causal=bool(spec.causal),
        window=spec.local_window_size if spec.windowed else 0,
        sinks=sinks_of(inputs.get("head_sink"), spec.num_heads, smooth=spec.smooth_softmax == 1),
        bias=bias,
        qk_output=outputs.get("output_qk"),
        qk_stage="masked" if spec.qk_output == 1 else "probabilities",
        path=kernel_path(tier),
        **call.context.attention_options,
    )
    return KernelCall(outputs, in_turn([*before, *append, attention, *after]), attention.plan)


def _bind_append(
    call: GroupQueryCall, sequences: Sequences, caches: list[Array], positions: Array | None
) -> tuple[Array, list[Run]]:
    """Q as attention reads it, `[B, rows, num_heads, head_size]`, and what prepares it and stores K and V."""
    spec, shape, inputs = call.spec, call.shape, call.inputs
    rows = (shape.batch_size, shape.sequence_length)
    heads = inputs["query"].reshape(*rows, inputs["query"].shape[2] // shape.head_size, shape.head_size)
    query, key, value = heads, None, None
    if shape.mode is KvMode.PACKED:
        query, key, value = np.split(heads, [spec.num_heads, spec.num_heads + spec.kv_num_heads], axis=2)
    elif shape.mode is KvMode.SEPARATE:
        key, value = (inputs[name].reshape(*rows, spec.kv_num_heads, shape.head_size) for name in ("key", "value"))
    prepares_query = bool(shape.rotary_dim) or "q_norm_weight" in inputs
    if key is None and not prepares_query:
        return query, []
    prepared = np.empty(query.shape, np.float32) if prepares_query else query
    append = Append(
        sequences,
        query=query if prepares_query else None,
        query_output=prepared if prepares_query else None,
        key=key,
        value=value,
        key_cache=None if key is None else caches[0],
        value_cache=None if value is None else caches[1],
        k_scale=None if key is None else inputs.get("k_scale"),
        v_scale=None if value is None else inputs.get("v_scale"),
        cos=inputs.get("cos_cache"),
        sin=inputs.get("sin_cache"),
        position_ids=positions,
        interleaved=bool(spec.rotary_interleaved),
        q_norm_weight=inputs.get("q_norm_weight"),
        k_norm_weight=None if key is None else inputs.get("k_norm_weight"),
        q_norm_epsilon=spec.q_norm_epsilon or spec.qk_norm_epsilon,
        k_norm_epsilon=spec.k_norm_epsilon or spec.qk_norm_epsilon,
        rule="reciprocal",
        **call.context.kernel_options,
    )
    return prepared, [append]


def _positions(call: GroupQueryCall) -> Array | None:
    """The position_ids that count: of a first prompt the very first alone."""
    if not call.shape.rotary_dim or "position_ids" not in call.inputs:
        return None
    given = call.inputs["position_ids"]
    return given[:1, :1] if call.shape.first_prompt else given


def _copy_past(call: GroupQueryCall, outputs: dict[str, Array]) -> None:
    """Fill what is not updated in place: the cached rows of each sequence, and zeros."""
    for row in range(call.shape.batch_size):
        step = sequence_step(call.shape, call.inputs, row)
        length = step.total if call.shape.mode is KvMode.SHARED else step.past
        for side in SIDES:
            if side in call.in_place:
                continue
            present, past = outputs[PRESENT[side]], call.inputs.get(PAST[side])
            if past is not None:
                present[row, :, :length] = past[row, :, :length]
            present[row, :, length:] = 0
