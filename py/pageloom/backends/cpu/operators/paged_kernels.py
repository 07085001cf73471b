"""PagedAttention bound to the compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pageloom_cpu import Append, Attention, Sequences

from pageloom.attention.numerics.dtypes import Array
from pageloom.attention.paged.check import PagedAttentionShape, QkvMode
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import KernelCall
from pageloom.backends.cpu.operators.kernel_types import in_turn, sinks_of
from pageloom.backends.cpu.tiers import CompiledTier, kernel_path


def bind(
    context: CpuContext,
    spec: PagedAttentionSpec,
    shape: PagedAttentionShape,
    inputs: Mapping[str, Array],
    outputs: dict[str, Array],
    tier: CompiledTier | None,
) -> KernelCall:
    """Two kernels: what prepares Q and stores K and V, and attention over the pages in place."""
    query, key, value = _qkv(spec, shape, inputs)
    sequences = Sequences(
        shape.batch_size,
        shape.num_tokens,
        query_offsets=inputs["cumulative_sequence_length"],
        past_lengths=inputs["past_seqlens"],
        position_limit=shape.position_limit,
    )
    prepares_query = bool(shape.rotary_dim) or shape.has_qk_norm
    prepared = np.empty(query.shape, np.float32) if prepares_query else query
    append = Append(
        sequences,
        query=query if prepares_query else None,
        query_output=prepared if prepares_query else None,
        key=key,
        value=value,
        key_cache=inputs["key_cache"],
        value_cache=inputs.get("value_cache"),
        k_scale=inputs.get("k_scale"),
        v_scale=inputs.get("v_scale"),
        block_table=inputs["block_table"],
        slot_mapping=inputs.get("slot_mapping"),
        cos=inputs.get("cos_cache"),
        sin=inputs.get("sin_cache"),
        interleaved=bool(spec.rotary_interleaved),
        rotary_offset=spec.rotary_offset,
        q_norm_weight=inputs.get("q_norm_weight"),
        k_norm_weight=inputs.get("k_norm_weight"),
        q_norm_epsilon=spec.qk_norm_epsilon,
        k_norm_epsilon=spec.qk_norm_epsilon,
        rule="divide",
        **context.kernel_options,
    )
    attention = Attention(
        sequences,
        prepared,
        outputs["output"].reshape(shape.num_tokens, spec.num_heads, shape.v_head_size),
        inputs["key_cache"],
        inputs.get("value_cache"),
        k_scale=inputs.get("k_scale"),
        v_scale=inputs.get("v_scale"),
        block_table=inputs["block_table"],
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        causal=bool(spec.is_causal),
        window=spec.local_window_size if spec.windowed else 0,
        sinks=sinks_of(inputs.get("head_sink"), spec.num_heads, smooth=bool(spec.use_smooth_softmax)),
        log_sum_exp=outputs.get("log_sum_exp"),
        path=kernel_path(tier),
        **context.attention_options,
    )
    return KernelCall(outputs, in_turn([append, attention]), attention.plan)


def _qkv(
    spec: PagedAttentionSpec, shape: PagedAttentionShape, inputs: Mapping[str, Array]
) -> tuple[Array, Array, Array | None]:
    """Q, K and V `[num_tokens, heads, head_size]`, parts of one array where they are packed; no V in LATENT."""
    heads = inputs["query"].reshape(shape.num_tokens, inputs["query"].shape[1] // shape.head_size, shape.head_size)
    if shape.mode is QkvMode.PACKED:
        query, key, value = np.split(heads, [spec.num_heads, spec.num_heads + spec.kv_num_heads], axis=1)
        return query, key, value
    rows = (shape.num_tokens, spec.kv_num_heads, shape.head_size)
    return heads, inputs["key"].reshape(rows), inputs["value"].reshape(rows) if "value" in inputs else None
