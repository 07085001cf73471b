"""GroupQueryAttention in numpy float64, written from the operator's contract alone: the oracle of every backend.

New K and V are rounded to the cache's element (or quantised, in float32) as they are written, and attention reads them
back from there. Nothing else is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pageloom.attention.group_query.check import GroupQueryAttentionShape, KvMode, check_shapes
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.kv_quantization import load, spread_scale, store
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, Bool, Float64, describe_all, to_float64
from pageloom.attention.numerics.embedding import rms_norm, rotate
from pageloom.attention.numerics.softmax import attend, head_groups, refuse_nan


@dataclass(frozen=True, slots=True)
class GroupQueryAttentionResult:
    """What the operator gives, and what an error budget needs. B sequences, S query rows, N query heads.

    - `output` `[B, S, N, head_size]`: not rounded;
    - `present_key`, `present_value` `[B, kv_num_heads, present_length, row_width]`: in the cache's type;
    - `output_qk` `[B, N, S, total_sequence_length]`, or None: not rounded;
    - `specified` `[B, S]`, `resident` `[B, present_length]`: the rows of the output and of the cache that the contract
      determines;
    - `mass`, `logit_mass`, `logit_size`, `num_keys` `[B, S, N]`: see `Attended`; the keys that the row sees.
    """

    output: Float64
    present_key: Array
    present_value: Array
    output_qk: Float64 | None
    specified: Bool
    resident: Bool
    mass: Float64
    logit_mass: Float64
    logit_size: Float64
    num_keys: Float64


@dataclass(frozen=True, slots=True)
class Step:
    """One sequence's part: `new` valid rows appended after `past` tokens, `total` tokens after them."""

    row: int
    past: int
    new: int
    total: int


def group_query_attention(
    spec: GroupQueryAttentionSpec, inputs: Mapping[str, Array], *, allow_nan: bool = False
) -> GroupQueryAttentionResult:
    """Run the operator on `inputs`, named as ONNX names them.

    Raises `InvalidArgument` where `check_shapes` does, FloatingPointError for a NaN in what is specified
    unless `allow_nan`.
    """
    total = int(inputs["total_sequence_length"].reshape(()))
    shape = check_shapes(spec, describe_all(dict(inputs)), total)
    query, key, value = prepared_qkv(spec, shape, inputs)
    rows = (shape.batch_size, shape.sequence_length, spec.num_heads)
    cache = (shape.batch_size, spec.kv_num_heads, shape.present_length)
    result = GroupQueryAttentionResult(
        output=np.zeros((*rows, shape.head_size)),
        present_key=_empty_cache(cache, shape, "k"),
        present_value=_empty_cache(cache, shape, "v"),
        output_qk=np.zeros((rows[0], rows[2], rows[1], total)) if spec.qk_output else None,
        specified=np.zeros(rows[:2], np.bool_),
        resident=np.zeros((rows[0], shape.present_length), np.bool_),
        **{name: np.zeros(rows) for name in ("mass", "logit_mass", "logit_size", "num_keys")},
    )
    for row in range(shape.batch_size):
        _run_step(spec, shape, inputs, sequence_step(shape, inputs, row), (query, key, value), result)
    if not allow_nan:
        refuse_nan("output", result.output[result.specified])
    return result


def _empty_cache(cache: tuple[int, int, int], shape: GroupQueryAttentionShape, side: str) -> Array:
    storage = shape.key_storage if side == "k" else shape.value_storage
    return np.zeros((*cache, storage.row_width(shape.head_size)), NUMPY_DTYPES[storage.tensor_dtype])


def sequence_step(shape: GroupQueryAttentionShape, inputs: Mapping[str, Array], row: int) -> Step:
    """The lengths of sequence `row`, clamped where the contract has them clamped."""
    total = min(max(int(inputs["seqlens_k"][row]) + 1, 0), shape.total_sequence_length)
    if shape.has_query_seqlens:
        new = min(max(int(inputs["query_seqlens"][row]), 0), shape.sequence_length, total)
        return Step(row, total - new, new, total)
    if shape.first_prompt:
        return Step(row, 0, shape.sequence_length, total)
    return Step(row, max(0, total - shape.sequence_length), shape.sequence_length, total)


def prepared_qkv(
    spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, inputs: Mapping[str, Array]
) -> tuple[Float64, Float64, Float64]:
    """Q, K and V `[B, rows, heads, head_size]` after norm and rotary; K and V have 0 rows where the past is shared.

    Of the position_ids of a first prompt the operator uses the first alone: every sequence counts up from there.
    """
    batch, rows = shape.batch_size, shape.sequence_length
    heads = to_float64(inputs["query"]).reshape(batch, rows, -1, shape.head_size)
    query = heads[:, :, : spec.num_heads]
    if shape.mode is KvMode.PACKED:
        key, value = np.split(heads[:, :, spec.num_heads :], 2, axis=2)
    else:
        key, value = (
            to_float64(inputs[name]).reshape(batch, -1, spec.kv_num_heads, shape.head_size)
            if shape.mode is KvMode.SEPARATE
            else np.zeros((batch, 0, spec.kv_num_heads, shape.head_size))
            for name in ("key", "value")
        )
    if "q_norm_weight" in inputs:
        query = rms_norm(query, inputs["q_norm_weight"], spec.q_norm_epsilon or spec.qk_norm_epsilon)
        key = rms_norm(key, inputs["k_norm_weight"], spec.k_norm_epsilon or spec.qk_norm_epsilon)
    if spec.do_rotary:
        last = len(inputs["cos_cache"]) - 1
        if "position_ids" in inputs and shape.first_prompt:
            positions = np.broadcast_to(inputs["position_ids"][0, 0] + np.arange(rows), (batch, rows))
        elif "position_ids" in inputs:
            positions = inputs["position_ids"]
        else:
            pasts = np.array([sequence_step(shape, inputs, row).past for row in range(batch)])
            positions = np.minimum(pasts[:, None] + np.arange(rows), last)
        caches = inputs["cos_cache"], inputs["sin_cache"]
        query = rotate(query, positions, *caches, interleaved=bool(spec.rotary_interleaved))
        key = rotate(key, positions[:, : key.shape[1]], *caches, interleaved=bool(spec.rotary_interleaved))
    return query, key, value


def _run_step(
    spec: GroupQueryAttentionSpec,
    shape: GroupQueryAttentionShape,
    inputs: Mapping[str, Array],
    step: Step,
    qkv: tuple[Float64, Float64, Float64],
    result: GroupQueryAttentionResult,
) -> None:
    query, key, value = (part[step.row] for part in qkv)
    keys, first = _history(spec, shape, inputs, step, "k", key)
    values, _ = _history(spec, shape, inputs, step, "v", value)
    positions = np.arange(first, step.total)
    visible = visible_keys(spec, shape, step, positions)
    bias = _bias(spec, inputs, step, positions)
    sinks = sink_logits(spec, inputs)
    groups = spec.kv_num_heads
    attended = attend(
        head_groups(groups, query.swapaxes(0, 1)),
        _loaded(spec, shape, inputs, "k", keys)[:, None],
        _loaded(spec, shape, inputs, "v", values)[:, None],
        visible[None, None],
        scale=spec.logit_scale(shape.head_size),
        softcap=spec.softcap,
        bias=None if bias is None else head_groups(groups, bias),
        sink=None if sinks is None else head_groups(groups, sinks[:, None]),
    )
    per_head = (spec.num_heads, shape.sequence_length)
    result.output[step.row] = attended.output.reshape(*per_head, -1).swapaxes(0, 1)
    for name in ("mass", "logit_mass", "logit_size"):
        getattr(result, name)[step.row] = getattr(attended, name).reshape(per_head).T
    result.num_keys[step.row] = visible.sum(axis=-1)[:, None]
    result.specified[step.row] = _specified_rows(spec, shape, step)
    if result.output_qk is not None:
        shown = np.where(visible, attended.logits, 0.0) if spec.qk_output == 1 else attended.weights
        result.output_qk[step.row][..., first : step.total] = shown.reshape(*per_head, -1)
    length = spec.resident_length(step.total, shape.present_length) if spec.sliding_window_cache else step.total
    for cache, rows in ((result.present_key, keys), (result.present_value, values)):
        cache[step.row, :, :length] = rows[:, len(positions) - length :]
    result.resident[step.row, :length] = True


def _history(
    spec: GroupQueryAttentionSpec,
    shape: GroupQueryAttentionShape,
    inputs: Mapping[str, Array],
    step: Step,
    side: str,
    new: Float64,
) -> tuple[Array, int]:
    """Stored rows `[kv_num_heads, L, row_width]` of one side, old and new, and the position of the first."""
    storage = shape.key_storage if side == "k" else shape.value_storage
    name = "past_key" if side == "k" else "past_value"
    scale = _scale(spec, shape, inputs, side)
    if shape.mode is KvMode.SHARED:
        return inputs[name][step.row][:, : step.total], 0
    valid = min(step.new, step.total - step.past)
    stored = store(new[:valid], storage, scale, "reciprocal").swapaxes(0, 1)
    resident = spec.resident_length(step.past, shape.past_length) if spec.sliding_window_cache else step.past
    if not resident:
        return stored, step.past
    return np.concatenate([inputs[name][step.row][:, :resident], stored], axis=1), step.past - resident


def _scale(
    spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, inputs: Mapping[str, Array], side: str
) -> Array | None:
    storage = shape.key_storage if side == "k" else shape.value_storage
    if not storage.quantized:
        return None
    return spread_scale(inputs[f"{side}_scale"], storage, spec.kv_num_heads, shape.head_size)


def _loaded(
    spec: GroupQueryAttentionSpec,
    shape: GroupQueryAttentionShape,
    inputs: Mapping[str, Array],
    side: str,
    rows: Array,
) -> Float64:
    storage = shape.key_storage if side == "k" else shape.value_storage
    scale = _scale(spec, shape, inputs, side)
    return load(rows, storage, None if scale is None else scale[:, None], shape.head_size)


def visible_keys(spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, step: Step, positions: Array) -> Bool:
    """bool `[S, L]`: which of the keys at `positions` [L] each query row sees.

    A right-padded row sees what the last valid one could: keys at or past the total are never there.
    """
    own = step.past + np.arange(shape.sequence_length)[:, None]
    visible = (positions <= own) if spec.causal else np.ones((len(own), len(positions)), np.bool_)
    if spec.windowed:
        visible = visible & (positions > own - spec.local_window_size)
    return visible


def sink_logits(spec: GroupQueryAttentionSpec, inputs: Mapping[str, Array]) -> Float64 | None:
    """float64[num_heads], or None where no sink joins the softmax."""
    if "head_sink" in inputs:
        return to_float64(inputs["head_sink"])
    return np.zeros(spec.num_heads) if spec.smooth_softmax == 1 else None


def _bias(spec: GroupQueryAttentionSpec, inputs: Mapping[str, Array], step: Step, positions: Array) -> Float64 | None:
    if "attention_bias" not in inputs:
        return None
    bias = to_float64(inputs["attention_bias"])
    one = bias[step.row if len(bias) > 1 else 0][..., positions]
    return np.broadcast_to(one, (spec.num_heads, *one.shape[1:]))


def _specified_rows(spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, step: Step) -> Bool:
    """bool[S]: not the padding of a chunk with query_seqlens, nor the padding of a prompt under a window."""
    rows = np.arange(shape.sequence_length)
    if shape.has_query_seqlens:
        return rows < step.new
    return rows < step.total - step.past if spec.windowed else rows >= 0
