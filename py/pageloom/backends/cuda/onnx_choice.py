"""Which tiers can run a call of Attention, and which help, by what is static: types, sizes, attributes, presence."""

from __future__ import annotations

from pageloom.attention.onnx.check import OnnxAttentionShape
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.tensors import DType
from pageloom.backends.cuda.availability import DeviceFacts
from pageloom.backends.cuda.cudnn_choice import why_not_cudnn
from pageloom.backends.cuda.tiers import Tier

MOST_DECODE_ROWS = 64
"""Query rows, of all heads of a K/V head, up to which splitting the keys beats large tiles."""
WIDEST_FLASH_HEAD = 256
WIDEST_TRITON_HEAD = 512


def cannot(
    facts: DeviceFacts,
    spec: OnnxAttentionSpec,
    shape: OnnxAttentionShape,
    *,
    value_dtype: DType,
    has_mask: bool,
    wants_products: bool,
) -> dict[Tier, str]:
    """The reason against each tier that cannot run the call."""
    common = _common(shape, value_dtype, has_mask=has_mask, wants_products=wants_products)
    reasons = {
        "triton": common or _triton(shape),
        "cudnn": common or _no_softcap(spec) or why_not_cudnn(facts, shape.dtype, shape.head_size, shape.v_head_size),
        "flash": common or _no_softcap(spec) or _flash(facts, spec, shape),
        "memory-efficient": _memory_efficient(facts, spec, shape, value_dtype, wants_products=wants_products),
    }
    tiers: tuple[Tier, ...] = ("triton", "cudnn", "flash", "memory-efficient")
    return {tier: reasons[tier] for tier in tiers if reasons[tier]}


def would_not_help(shape: OnnxAttentionShape) -> dict[Tier, str]:
    """The reason against each tier that a slower-listed one beats."""
    rows = shape.q_sequence_length * (shape.q_num_heads // shape.kv_num_heads)
    if rows > MOST_DECODE_ROWS:
        return {"triton": f"a K/V head has {rows} query rows; above {MOST_DECODE_ROWS} large tiles are faster"}
    return {}


def _common(shape: OnnxAttentionShape, value_dtype: DType, *, has_mask: bool, wants_products: bool) -> str:
    """What no tier of fused half-precision kernels does."""
    if shape.dtype not in ("float16", "bfloat16"):
        return f"it takes float16 and bfloat16, not {shape.dtype}"
    if value_dtype != shape.dtype:
        return f"V has element type {value_dtype} and Q {shape.dtype}; it takes one type"
    if has_mask:
        return "attn_mask is given, and it masks by lengths alone"
    if wants_products:
        return "qk_matmul_output is wanted, and it keeps no scores"
    return ""


def _no_softcap(spec: OnnxAttentionSpec) -> str:
    return "it has no softcap" if spec.softcap else ""


def _triton(shape: OnnxAttentionShape) -> str:
    for name, size in (("head_size", shape.head_size), ("v_head_size", shape.v_head_size)):
        if size % 8 or size > WIDEST_TRITON_HEAD:
            return f"{name} is {size}; it takes multiples of 8 up to {WIDEST_TRITON_HEAD}"
    return ""


def _flash(facts: DeviceFacts, spec: OnnxAttentionSpec, shape: OnnxAttentionShape) -> str:
    if facts.capability < (8, 0):
        return f"it needs compute capability 8.0; {facts.name} has {facts.capability[0]}.{facts.capability[1]}"
    if shape.head_size != shape.v_head_size:
        return f"v_head_size is {shape.v_head_size} and head_size {shape.head_size}; it takes one size"
    if shape.head_size % 8 or shape.head_size > WIDEST_FLASH_HEAD:
        return f"head_size is {shape.head_size}; it takes multiples of 8 up to {WIDEST_FLASH_HEAD}"
    if shape.has_nonpad and not shape.flat:
        return "with lengths it takes K and V of three dimensions, whose batch rows follow each other token by token"
    if _is_top_left(spec, shape):
        return "without a cache the causal rule is aligned to the top left, and it aligns to the bottom right"
    return ""


def _memory_efficient(
    facts: DeviceFacts, spec: OnnxAttentionSpec, shape: OnnxAttentionShape, value_dtype: DType, *, wants_products: bool
) -> str:
    if facts.capability < (5, 0):
        return f"it needs a GPU; this is {facts.name}"
    if shape.dtype == "float64":
        return "it takes float16, bfloat16 and float32, not float64"
    if value_dtype != shape.dtype:
        return f"V has element type {value_dtype} and Q {shape.dtype}; it takes one type"
    if shape.has_nonpad:
        return "it masks by a bias, under which what lies beyond nonpad_kv_seqlen would still be multiplied with 0"
    if wants_products:
        return "qk_matmul_output is wanted, and it keeps no scores"
    if spec.softcap:
        return "it has no softcap"
    multiple = 4 if shape.dtype == "float32" else 8
    for name, size in (("head_size", shape.head_size), ("v_head_size", shape.v_head_size)):
        if size % multiple:
            return f"{name} is {size}; it takes multiples of {multiple}"
    return ""


def _is_top_left(spec: OnnxAttentionSpec, shape: OnnxAttentionShape) -> bool:
    square = shape.q_sequence_length == shape.total_sequence_length
    return bool(spec.is_causal) and not shape.has_nonpad and not shape.past_length and not square
