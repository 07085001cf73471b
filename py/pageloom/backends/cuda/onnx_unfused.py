"""The last tier of Attention: matrix products and a softmax, with masks, captured scores and every float type."""

from __future__ import annotations

import torch

from pageloom.backends.cuda.onnx_call import AttentionCall
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.unfused import attend


def run_unfused(call: AttentionCall, plan: Plan) -> None:
    """Into the call's output, and its products where they are wanted."""
    shape, total = call.shape, call.shape.total_sequence_length
    visible, bias = call.visible(), None
    if call.mask is not None:
        mask = _padded(call.mask, total)
        if mask.dtype == torch.bool:
            visible = visible & mask
        else:
            bias = mask.to(_precise(mask))
            visible = visible & ~torch.isneginf(bias)
    attended = attend(
        _grouped(call.query.to(_precise(call.query)), shape.kv_num_heads),
        call.key.to(_precise(call.query))[:, :, None],
        call.value.to(_precise(call.query))[:, :, None],
        _grouped(visible, shape.kv_num_heads),
        scale=call.scale,
        softcap=float(call.spec.softcap),
        bias=None if bias is None else _grouped(bias, shape.kv_num_heads),
    )
    call.output.copy_(attended.output.flatten(1, 2))
    if call.products is not None:
        modes = (attended.products, attended.capped, attended.logits, attended.weights)
        scores = modes[call.spec.qk_matmul_output_mode].flatten(1, 2)
        call.products.copy_(scores)


def _precise(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _padded(mask: torch.Tensor, total: int) -> torch.Tensor:
    """Of four dimensions, its last brought to `total`: what is missing hides its keys."""
    mask = mask.reshape(*(1,) * (4 - mask.dim()), *mask.shape)
    missing = total - mask.shape[-1]
    hidden = False if mask.dtype == torch.bool else -torch.inf
    return torch.nn.functional.pad(mask, (0, missing), value=hidden) if missing else mask


def _grouped(tensor: torch.Tensor, kv_num_heads: int) -> torch.Tensor:
    """`[B, heads, ...]` as `[B, kv heads, group, ...]`, or a single head for all as `[B, 1, 1, ...]`."""
    if tensor.shape[1] == 1:
        return tensor[:, :, None]
    return tensor.unflatten(1, (kv_num_heads, -1))
