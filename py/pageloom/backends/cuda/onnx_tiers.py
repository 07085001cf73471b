"""The fused tiers of Attention: our split keys, cuDNN, and Flash and memory-efficient attention as PyTorch has them."""

from __future__ import annotations

import torch

from pageloom.attention.cache_storage import CacheStorage
from pageloom.backends.cuda.attend import attend
from pageloom.backends.cuda.cached import Cached, Strides
from pageloom.backends.cuda.cudnn_sdpa import Causal, SdpaForm, finite_values, run_sdpa
from pageloom.backends.cuda.geometry import Geometry, power_of_two, tile_of
from pageloom.backends.cuda.onnx_call import AttentionCall, strides
from pageloom.backends.cuda.plans import Plan

BIAS_ALIGNMENT = 16
"""Elements that a row of the memory-efficient kernel's bias must be a multiple of."""
CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = 1, 2
"""PyTorch's numbers of the memory-efficient kernel's masks."""


def run_triton(call: AttentionCall, plan: Plan) -> None:
    """Split keys over the cache in place; lengths are read on the device, and rows that see no key come out 0."""
    spec, shape = call.spec, call.shape
    storage = CacheStorage(shape.dtype, "NONE")  # type: ignore[arg-type]  # float16 or bfloat16 here
    geometry = Geometry(
        dtype=shape.dtype,
        num_heads=shape.q_num_heads,
        kv_num_heads=shape.kv_num_heads,
        head_size=shape.head_size,
        v_head_size=shape.v_head_size,
        scale=call.scale,
        key_storage=storage,
        value_storage=storage,
        lengths="external" if shape.has_nonpad else "fixed",
        softcap=float(spec.softcap),
        causal=bool(spec.is_causal),
    )
    cached = Cached(
        inputs={},
        query=call.query,
        key=None,
        value=None,
        key_cache=call.key,
        value_cache=call.value,
        output=call.output,
        log_sum_exp=None,
        query_strides=_strides(call.query),
        key_strides=_strides(call.key),
        value_strides=_strides(call.value),
        output_strides=_strides(call.output),
        kv_row=0,
        starts=None,
        lengths=call.lengths,
        query_lengths=None,
        table=None,
        sequences=shape.batch_size,
        num_tokens=shape.batch_size * shape.q_sequence_length,
        rows=shape.q_sequence_length,
        limit=shape.total_sequence_length,
        fixed_past=shape.past_length,
        query_bound=shape.q_sequence_length,
        kv_bound=shape.total_sequence_length,
    )
    tile = tile_of(
        geometry,
        sequences=shape.batch_size,
        query_bound=shape.q_sequence_length,
        kv_bound=shape.total_sequence_length,
        multiprocessors=call.facts.multiprocessors,
    )
    attend(geometry, cached, call.query, cached.query_strides, tile, plan)


def _strides(heads: torch.Tensor) -> Strides:
    batch, head, row = strides(heads)
    return Strides(batch, row, head)


def run_cudnn(call: AttentionCall, plan: Plan) -> None:
    """cuDNN, whose output tensor's strides say where rows of either rank go; rows that see no key are set to 0 after
    it."""
    spec, shape = call.spec, call.shape
    causal: Causal = "none"
    if spec.is_causal:
        causal = "bottom-right" if shape.has_nonpad or shape.past_length else "top-left"
    lengths = None if call.lengths is None else call.keys().int()
    value = call.value
    if lengths is not None and shape.q_sequence_length > 1:
        value = finite_values(value, lengths)
    form = SdpaForm(
        dtype=shape.dtype,
        batch=shape.batch_size,
        num_heads=shape.q_num_heads,
        kv_num_heads=shape.kv_num_heads,
        rows=shape.q_sequence_length,
        kv_rows=shape.total_sequence_length,
        head_size=shape.head_size,
        v_head_size=shape.v_head_size,
        q_strides=strides(call.query),
        k_strides=strides(call.key),
        v_strides=strides(value),
        o_strides=strides(call.output),
        scale=call.scale,
        causal=causal,
        has_lengths=shape.has_nonpad,
    )
    run_sdpa(form, plan, call.query, call.key, value, call.output, lengths)
    if lengths is not None:
        clear_hidden_rows(call, lengths)


def clear_hidden_rows(call: AttentionCall, lengths: torch.Tensor) -> None:
    """Set the output's rows that see no key to 0, on the device."""
    from pageloom.backends.cuda.kernels.gather import clear_hidden_kernel  # noqa: PLC0415 - Triton is optional

    shape = call.shape
    batch, head, row = strides(call.output)
    clear_hidden_kernel[(shape.batch_size * shape.q_sequence_length,)](
        call.output, lengths, shape.q_sequence_length, batch, row, head,
        HEADS=shape.q_num_heads, WIDTH=shape.v_head_size, WIDTH_BLOCK=power_of_two(shape.v_head_size),
        CAUSAL=bool(call.spec.is_causal), num_warps=1,
    )  # fmt: skip


def run_flash(call: AttentionCall, plan: Plan) -> None:
    """FlashAttention-2 as PyTorch carries it, which takes tokens before heads; with lengths, of variable length."""
    spec, shape = call.spec, call.shape
    causal = bool(spec.is_causal)
    query, key, value = (heads.transpose(1, 2) for heads in (call.query, call.key, call.value))
    if call.lengths is None:
        result = torch.ops.aten._flash_attention_forward(
            query, key, value, None, None, shape.q_sequence_length, shape.total_sequence_length,
            0.0, causal, False, scale=call.scale,
        )[0]  # fmt: skip
    else:
        rows = torch.arange(shape.batch_size + 1, dtype=torch.int32, device=query.device)
        result = torch.ops.aten._flash_attention_forward(
            query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1),
            rows * shape.q_sequence_length, rows * shape.total_sequence_length,
            shape.q_sequence_length, shape.total_sequence_length,
            0.0, causal, False, scale=call.scale, seqused_k=call.keys().int(),
        )[0].unflatten(0, (shape.batch_size, -1))  # fmt: skip
    call.output.copy_(result.transpose(1, 2))


def run_memory_efficient(call: AttentionCall, plan: Plan) -> None:
    """CUTLASS' attention as PyTorch carries it: K/V heads repeated for their group, the mask as a bias."""
    spec, shape = call.spec, call.shape
    group = shape.q_num_heads // shape.kv_num_heads
    query = call.query.transpose(1, 2)
    key, value = (heads.repeat_interleave(group, dim=1).transpose(1, 2) for heads in (call.key, call.value))
    bias, kind = None, 0
    if call.mask is not None:
        bias = _bias(call, call.visible())
    elif spec.is_causal:
        kind = CAUSAL_BOTTOM_RIGHT if shape.past_length else CAUSAL_TOP_LEFT
    result = torch.ops.aten._efficient_attention_forward(
        query, key, value, bias, None, None, None, None, 0.0, kind, False, scale=call.scale
    )[0]
    if bias is not None:
        sees = (bias > -torch.inf).any(dim=-1).transpose(1, 2)[..., None]
        result = torch.where(sees, result, 0.0)
    call.output.copy_(result.transpose(1, 2))


def _bias(call: AttentionCall, visible: torch.Tensor) -> torch.Tensor:
    """`[B, heads, rows, keys]` of the query's type, -inf where the mask, padding or the causal rule hide a key, with
    rows that begin where the kernel can load them."""
    shape, total, mask = call.shape, call.shape.total_sequence_length, call.mask
    size = (shape.batch_size, shape.q_num_heads, shape.q_sequence_length, total)
    padded = -(-total // BIAS_ALIGNMENT) * BIAS_ALIGNMENT
    bias = torch.zeros((*size[:3], padded), dtype=call.query.dtype, device=call.query.device)[..., :total]
    if mask is not None:
        mask = mask.reshape(*(1,) * (4 - mask.dim()), *mask.shape)
        columns = mask.shape[-1]
        if mask.dtype == torch.bool:
            bias[..., :columns].masked_fill_(~mask, -torch.inf)
        else:
            bias[..., :columns] = mask
        bias[..., columns:] = -torch.inf
    return bias.masked_fill_(~visible, -torch.inf)
