"""Attention as matrix products and a softmax of PyTorch: every element type and feature, on any device.

Lengths, tables and masks stay on the device, so it can be captured in a CUDA graph as the other tiers can.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from pageloom.attention.cache_storage import CacheStorage

GATHERED_BYTES = 2**28
"""Of K and V in float32, gathered for some tokens at a time."""


@dataclass(frozen=True, slots=True)
class Attended:
    """`output` `[..., R, Dv]`, `log_sum_exp` `[..., R]`, and the scores `[..., R, L]`: `products` scale * q.k, `capped`
    after softcap, `logits` after bias and -inf where masked, `weights` after softmax, 0 in rows that see no key."""

    output: torch.Tensor
    log_sum_exp: torch.Tensor
    products: torch.Tensor
    capped: torch.Tensor
    logits: torch.Tensor
    weights: torch.Tensor


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> Attended:
    """Attention of `query` `[..., R, D]` over `keys` `[..., L, D]` and `values` `[..., L, Dv]`, all of one float type.

    `visible` bool `[..., R, L]` and `bias`, `sink` `[..., R]` broadcast. What no row of `visible` sees may hold NaN.
    """
    seen = visible.any(dim=-2).unsqueeze(-1)
    values = torch.where(seen, values, 0.0)
    with full_precision():
        products = torch.matmul(query, keys.transpose(-1, -2)) * scale
        capped = torch.tanh(products / softcap) * softcap if softcap else products
        logits = capped if bias is None else capped + bias
        logits = torch.where(visible, logits, -torch.inf)
        top = (
            logits.amax(dim=-1, keepdim=True)
            if logits.shape[-1]
            else logits.new_full((*logits.shape[:-1], 1), -torch.inf)
        )
        if sink is not None:
            top = torch.maximum(top, sink.unsqueeze(-1))
        top = torch.where(torch.isneginf(top), 0.0, top)
        exponentials = torch.exp(logits - top)
        denominator = exponentials.sum(dim=-1, keepdim=True)
        if sink is not None:
            denominator = denominator + torch.exp(sink.unsqueeze(-1) - top)
        weights = torch.where(denominator > 0, exponentials / denominator, 0.0)
        output = torch.matmul(weights, values)
    log_sum_exp = (torch.log(denominator) + top).squeeze(-1)
    return Attended(output, log_sum_exp, products, capped, logits, weights)


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 in float32, whatever the process allows elsewhere."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed


def loaded(stored: torch.Tensor, storage: CacheStorage, scale: torch.Tensor | None, head_size: int) -> torch.Tensor:
    """float32 (float64 of float64) values `[..., heads, head_size]` of stored rows; `scale` `[heads, head_size]`."""
    if storage.element == "int4":
        nibbles = torch.stack((stored & 15, stored >> 4), dim=-1).flatten(-2)
        stored = nibbles[..., :head_size].to(torch.int8) - 8
    values = stored if stored.dtype == torch.float64 else stored.to(torch.float32)
    return values if scale is None else values * scale


def spread_scale(
    scale: torch.Tensor | None, storage: CacheStorage, kv_num_heads: int, head_size: int
) -> torch.Tensor | None:
    """float32 `[kv_num_heads, head_size]`: the scale of every channel, whatever its granularity; None without one."""
    if scale is None or not storage.quantized:
        return None
    shape = (kv_num_heads, head_size)
    return scale.reshape(-1).expand(shape) if storage.quant_type == "PER_TENSOR" else scale.reshape(shape)
