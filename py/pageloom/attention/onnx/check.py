"""Which inputs an Attention may be given, by types and shapes, and the rule on the lengths of an external cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.tensors import DType, TensorInfo
from pageloom.attention.validation import Inputs, require, require_dtype, require_rank, require_tensor
from pageloom.errors import InvalidArgument

INPUT_NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
FLOATS: tuple[DType, ...] = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class OnnxAttentionShape:
    """What the shapes say. `flat` inputs have three dimensions, heads beside each other in the last."""

    flat: bool
    dtype: DType
    batch_size: int
    q_num_heads: int
    kv_num_heads: int
    q_sequence_length: int
    kv_sequence_length: int
    past_length: int
    head_size: int
    v_head_size: int
    has_nonpad: bool

    @property
    def total_sequence_length(self) -> int:
        """Keys of the past and of K together."""
        return self.past_length + self.kv_sequence_length


def check_shapes(spec: OnnxAttentionSpec, given: dict[str, TensorInfo]) -> OnnxAttentionShape:
    """The resolved shape of a call with the inputs `given`, by ONNX name. Raises `InvalidArgument` naming the input."""
    inputs = Inputs(given, INPUT_NAMES)
    query, key, value = (inputs.need(name) for name in ("Q", "K", "V"))
    require_rank("Q", query, 3, 4)
    flat = len(query.shape) == 3
    require_dtype("Q", query, *FLOATS)
    require_dtype("K", key, query.dtype)
    require_dtype("V", value, *FLOATS)
    for name, tensor in (("K", key), ("V", value)):
        require_rank(name, tensor, len(query.shape))
    batch, q_heads, q_rows, head_size = _split("Q", query, spec.q_num_heads, "q_num_heads")
    k_batch, kv_heads, kv_rows, k_head_size = _split("K", key, spec.kv_num_heads, "kv_num_heads")
    v_batch, v_heads, v_rows, v_head_size = _split("V", value, spec.kv_num_heads, "kv_num_heads")
    require(
        (k_batch, k_head_size) == (batch, head_size),
        f"K has shape {key.shape} and Q {query.shape}; batch and head size must agree",
        "K",
    )
    require(
        (v_batch, v_heads, v_rows) == (batch, kv_heads, kv_rows),
        f"V has shape {value.shape} and K {key.shape}; batch, heads and rows must agree",
        "V",
    )
    require(q_heads % kv_heads == 0, f"Q has {q_heads} heads, no multiple of the {kv_heads} of K", "K")
    past_length = _past(inputs, (batch, kv_heads), (key.dtype, head_size), (value.dtype, v_head_size))
    has_nonpad = _nonpad(spec, inputs, batch)
    total = past_length + kv_rows
    if (mask := inputs.get("attn_mask")) is not None:
        _mask(mask, query.dtype, (batch, q_heads, q_rows), total)
    return OnnxAttentionShape(
        flat, query.dtype, batch, q_heads, kv_heads, q_rows, kv_rows, past_length, head_size, v_head_size, has_nonpad
    )


def _split(param: str, tensor: TensorInfo, heads: int | None, heads_param: str) -> tuple[int, int, int, int]:
    """(batch, heads, rows, head size) of a tensor of three or four dimensions."""
    require(tensor.shape[-1] > 0, f"{param} has shape {tensor.shape}; at least one channel is expected", param)
    if len(tensor.shape) == 4:
        batch, own, rows, width = tensor.shape
        require(
            own > 0 and heads in (None, own),
            f"{param} has {own} heads and {heads_param} is {heads}; they must agree, and be at least 1",
            param,
        )
        return batch, own, rows, width
    if heads is None:
        raise InvalidArgument(f"{heads_param} is unset; inputs of three dimensions need it", param=heads_param)
    batch, rows, hidden = tensor.shape
    require(
        hidden % heads == 0, f"{param} has {hidden} channels; a multiple of {heads_param} {heads} is expected", param
    )
    return batch, heads, rows, hidden // heads


def _past(inputs: Inputs, lead: tuple[int, int], key: tuple[DType, int], value: tuple[DType, int]) -> int:
    if not inputs.need_both("past_key", "past_value"):
        return 0
    past = inputs.need("past_key")
    require_rank("past_key", past, 4)
    for name, (dtype, width) in (("past_key", key), ("past_value", value)):
        require_tensor(name, inputs.need(name), dtype, (*lead, past.shape[2], width))
    return past.shape[2]


def _nonpad(spec: OnnxAttentionSpec, inputs: Inputs, batch: int) -> bool:
    if not inputs.has("nonpad_kv_seqlen"):
        return False
    if spec.opset < 24:
        inputs.forbid("nonpad_kv_seqlen", "opset 23 does not have it, use 24")
    inputs.forbid("past_key", "nonpad_kv_seqlen says that K is the whole cache")
    require_tensor("nonpad_kv_seqlen", inputs.need("nonpad_kv_seqlen"), "int64", (batch,))
    return True


def _mask(mask: TensorInfo, dtype: DType, rows: tuple[int, int, int], total: int) -> None:
    require_dtype("attn_mask", mask, "bool", dtype)
    require_rank("attn_mask", mask, 2, 3, 4)
    lead = mask.shape[:-1]
    require(
        all(size in (1, full) for size, full in zip(reversed(lead), reversed(rows), strict=False))
        and mask.shape[-1] <= total,
        f"attn_mask has shape {mask.shape}; it must broadcast to {(*rows, total)}, and only the last may be shorter",
        "attn_mask",
    )


def check_nonpad(shape: OnnxAttentionShape, nonpad_kv_seqlen: Sequence[int], mask_columns: int | None = None) -> None:
    """Raise `InvalidArgument` for lengths, known to the host, that are negative, pass K, or pass the mask's columns."""
    limit = shape.kv_sequence_length
    for row, length in enumerate(nonpad_kv_seqlen):
        require(
            0 <= length <= limit,
            f"nonpad_kv_seqlen of row {row} is {length}; 0 to {limit} is allowed",
            "nonpad_kv_seqlen",
        )
        require(
            mask_columns is None or length <= mask_columns,
            f"attn_mask has {mask_columns} columns; row {row} has {length} valid keys",
            "attn_mask",
        )
