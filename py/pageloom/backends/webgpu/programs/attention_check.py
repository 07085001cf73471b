"""A decoder's attention as the attention programs know it: what is refused, and the form of the rest."""

from __future__ import annotations

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.kv_cache import check_block_size
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.elements import element_kind
from pageloom.engine.runner_settings import KvDtype
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.layer_ops import PagedAttention

MAX_HEAD_SIZE = 512


def decoder_form(
    info: DeviceInfo, op: PagedAttention, block_size: int, cache_dtype: KvDtype = "float16"
) -> AttentionForm:
    """f32 activations over caches of `cache_dtype`. Raises as `check_attention` and `check_block_size` do."""
    check_block_size(block_size)
    check_attention(op)
    cache_kind = element_kind(info, cache_dtype)
    return AttentionForm(
        num_heads=op.num_heads,
        kv_num_heads=op.kv_num_heads,
        head_size=op.head_size,
        v_head_size=op.head_size,
        block_size=block_size,
        key_kind=cache_kind,
        value_kind=cache_kind,
        output_kind="f32",
        softcap=float(op.softcap),
        window=op.local_window_size,
    )


def why_not_attention(op: PagedAttention) -> str | None:
    """The reason why no program here computes `op`, or None."""
    if op.head_size % 8 or not 8 <= op.head_size <= MAX_HEAD_SIZE:
        return f"head size {op.head_size}; it must be a multiple of 8 from 8 to {MAX_HEAD_SIZE}"
    if op.rope is not None and (op.rope.dim % 8 or not 8 <= op.rope.dim <= op.head_size):
        return f"rotary over {op.rope.dim} channels; it must be a multiple of 8 up to the head size, {op.head_size}"
    if (op.q_norm is None) != (op.k_norm is None):
        return "a norm of only one of Q and K"
    return None


def check_attention(op: PagedAttention) -> None:
    """Raise `InvalidArgument` for a description that contradicts itself, `NotSupported` for what no program does."""
    if op.kv_num_heads < 1 or op.num_heads < 1 or op.num_heads % op.kv_num_heads:
        raise InvalidArgument(
            f"layer {op.layer} has {op.num_heads} query heads over {op.kv_num_heads} KV heads; "
            "the first must be a positive multiple of the second",
            param="num_heads",
        )
    if op.local_window_size != -1 and op.local_window_size < 1:
        raise InvalidArgument(
            f"layer {op.layer} has a window of {op.local_window_size} keys; it must be positive, or -1 for none",
            param="local_window_size",
        )
    if op.softcap < 0:
        raise InvalidArgument(
            f"layer {op.layer} has a softcap of {op.softcap}; it must be positive, or 0 for none", param="softcap"
        )
    if op.rope is not None and len(op.rope.inverse_frequencies) != op.rope.dim // 2:
        raise InvalidArgument(
            f"layer {op.layer} rotates {op.rope.dim} channels with {len(op.rope.inverse_frequencies)} frequencies; "
            "it takes one for each pair of channels",
            param="rope",
        )
    reason = why_not_attention(op)
    if reason is not None:
        raise NotSupported(f"attention of layer {op.layer} is not supported: {reason}")
