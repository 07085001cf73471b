"""ONNX Attention bound to the compiled kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pageloom_cpu import Attention, Sequences

from pageloom.attention.numerics.dtypes import Array
from pageloom.backends.cpu.operators.bound import KernelCall, Run
from pageloom.backends.cpu.operators.kernel_types import in_turn
from pageloom.backends.cpu.operators.onnx_call import PRESENTS, OnnxAttentionCall
from pageloom.backends.cpu.tiers import CompiledTier, kernel_path

QkStage = Literal["scaled", "softcapped", "masked", "probabilities"]
QK_STAGES: tuple[QkStage, ...] = ("scaled", "softcapped", "masked", "probabilities")
"""By qk_matmul_output_mode."""


def bind(call: OnnxAttentionCall, tier: CompiledTier | None) -> KernelCall:
    """What joins past and new rows, where both are there or the joined are wanted, and attention."""
    spec, shape, inputs, outputs = call.spec, call.shape, call.inputs, call.outputs()
    steps: list[Run] = []
    caches = []
    for present, (past, new) in PRESENTS.items():
        rows = _by_heads(inputs[new], shape.kv_num_heads, flat=shape.flat)
        if past in inputs or present in outputs:
            joined = outputs.get(present)
            if joined is None:
                joined = np.empty((*rows.shape[:2], shape.total_sequence_length, rows.shape[3]), rows.dtype)
            steps.append(_Join(joined, inputs.get(past), rows))
            rows = joined
        caches.append(rows)
    query = _by_heads(inputs["Q"], shape.q_num_heads, flat=shape.flat)
    output = _by_heads(outputs["Y"], shape.q_num_heads, flat=shape.flat)
    attention = Attention(
        _sequences(call),
        query.swapaxes(1, 2),
        output.swapaxes(1, 2),
        *caches,
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        causal=bool(spec.is_causal),
        bias=_mask(call),
        qk_output=outputs.get("qk_matmul_output"),
        qk_stage=QK_STAGES[spec.qk_matmul_output_mode],
        qk_hidden=-np.inf if spec.qk_matmul_output_mode == 2 else 0.0,
        path=kernel_path(tier),
        **call.context.attention_options,
    )
    return KernelCall(outputs, in_turn([*steps, attention]), attention.plan)


class _Join:
    """Copies past and new rows to where they lie together."""

    def __init__(self, joined: Array, past: Array | None, new: Array) -> None:
        length = joined.shape[2] - new.shape[2]
        self._copies = [(joined[:, :, length:], new)]
        if past is not None:
            self._copies.append((joined[:, :, :length], past))

    def __call__(self) -> None:
        for target, source in self._copies:
            np.copyto(target, source)


def _by_heads(array: Array, num_heads: int, *, flat: bool) -> Array:
    """`[B, heads, rows, width]` over the memory of an array of either rank."""
    if not flat:
        return array
    batch, rows, hidden = array.shape
    return array.reshape(batch, rows, num_heads, hidden // num_heads).swapaxes(1, 2)


def _sequences(call: OnnxAttentionCall) -> Sequences:
    shape = call.shape
    if shape.has_nonpad:
        return Sequences(shape.batch_size, shape.q_sequence_length, total_lengths=call.inputs["nonpad_kv_seqlen"])
    return Sequences(
        shape.batch_size,
        shape.q_sequence_length,
        total=shape.total_sequence_length,
        first_position=shape.past_length,
    )


def _mask(call: OnnxAttentionCall) -> Array | None:
    """attn_mask with four dimensions."""
    mask = call.inputs.get("attn_mask")
    return None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
