"""ONNX Attention in numpy float64, written from the operator's text (with its errata): the oracle of every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pageloom.attention.numerics.dtypes import Array, Bool, Float64, describe_all, to_float64
from pageloom.attention.numerics.softmax import Attended, attend, refuse_nan
from pageloom.attention.onnx.check import OnnxAttentionShape, check_shapes
from pageloom.attention.onnx.spec import OnnxAttentionSpec


@dataclass(frozen=True, slots=True)
class OnnxAttentionResult:
    """What the operator gives, and what an error budget needs. N query heads, S query rows, T keys.

    - `output`: of Q's rank, `[B, N, S, v_head_size]` or `[B, S, N * v_head_size]`: not rounded;
    - `present_key`, `present_value` `[B, kv_num_heads, T, ...]`: copies, bit for bit;
    - `qk_matmul_output` `[B, N, S, T]`: not rounded; -inf where mode 2 masks;
    - `visible` `[B, N, S, T]`: the keys that take part, and `attended` with axes `[B, kv_num_heads, group, ...]`.
    """

    output: Float64
    present_key: Array
    present_value: Array
    qk_matmul_output: Float64
    visible: Bool
    attended: Attended


def onnx_attention(
    spec: OnnxAttentionSpec, inputs: Mapping[str, Array], *, allow_nan: bool = False
) -> OnnxAttentionResult:
    """Run the operator on `inputs`, named as ONNX names them.

    Raises `InvalidArgument` where `check_shapes` does, FloatingPointError for a NaN in the output unless
    `allow_nan`.
    """
    shape = check_shapes(spec, describe_all(dict(inputs)))
    query = _heads(inputs["Q"], shape.q_num_heads, shape.flat)
    key, value = (_heads(inputs[name], shape.kv_num_heads, shape.flat) for name in ("K", "V"))
    if "past_key" in inputs:
        key = np.concatenate([inputs["past_key"], key], axis=2)
        value = np.concatenate([inputs["past_value"], value], axis=2)
    full = (shape.batch_size, shape.q_num_heads, shape.q_sequence_length, shape.total_sequence_length)
    visible = np.broadcast_to(visible_keys(spec, shape, inputs), full)
    bias = None
    if "attn_mask" in inputs:
        mask = _padded_mask(inputs["attn_mask"], shape.total_sequence_length)
        if mask.dtype == np.bool_:
            visible = visible & mask
        else:
            bias = np.broadcast_to(to_float64(mask), full)
            visible = visible & ~np.isneginf(bias)

    group = shape.q_num_heads // shape.kv_num_heads

    def grouped(array: Array) -> Array:
        return array.reshape(shape.batch_size, shape.kv_num_heads, group, *array.shape[2:])

    attended = attend(
        grouped(to_float64(query)),
        to_float64(key)[:, :, None],
        to_float64(value)[:, :, None],
        grouped(visible),
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        bias=None if bias is None else grouped(bias),
    )
    output = attended.output.reshape(*full[:3], shape.v_head_size)
    if not allow_nan:
        refuse_nan("output", output)
    return OnnxAttentionResult(
        output=output.swapaxes(1, 2).reshape(full[0], full[2], full[1] * shape.v_head_size) if shape.flat else output,
        present_key=key,
        present_value=value,
        qk_matmul_output=_qk_output(spec, attended, grouped(visible)).reshape(full),
        visible=visible,
        attended=attended,
    )


def _heads(array: Array, num_heads: int, flat: bool) -> Array:
    """`[B, heads, rows, width]` of an input of either rank."""
    if not flat:
        return array
    batch, rows, hidden = array.shape
    return array.reshape(batch, rows, num_heads, hidden // num_heads).swapaxes(1, 2)


def visible_keys(spec: OnnxAttentionSpec, shape: OnnxAttentionShape, inputs: Mapping[str, Array]) -> Bool:
    """bool `[B, 1, S, T]`: the keys that neither the causal rule nor the padding of an external cache hides."""
    rows, keys = np.arange(shape.q_sequence_length)[:, None], np.arange(shape.total_sequence_length)
    lengths = inputs.get("nonpad_kv_seqlen", np.full(shape.batch_size, shape.total_sequence_length))[:, None, None]
    visible = np.broadcast_to(keys < lengths, (shape.batch_size, len(rows), len(keys)))
    if spec.is_causal:
        offsets = lengths - shape.q_sequence_length if shape.has_nonpad else shape.past_length
        visible = visible & (keys <= rows + offsets)
    return visible[:, None]


def _padded_mask(mask: Array, total: int) -> Array:
    """`mask` with its last dimension brought to `total`: what is missing hides its keys."""
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
    hidden = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, missing, constant_values=hidden)


def _qk_output(spec: OnnxAttentionSpec, attended: Attended, visible: Bool) -> Float64:
    if spec.qk_matmul_output_mode == 3:
        return attended.weights
    if spec.qk_matmul_output_mode == 2:
        return np.where(visible, attended.logits, -np.inf)
    if spec.qk_matmul_output_mode == 1 and spec.softcap > 0:
        return spec.softcap * np.tanh(attended.products / spec.softcap)
    return attended.products
