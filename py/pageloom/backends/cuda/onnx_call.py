"""One call of Attention as its tiers see it: views of either rank, and the lengths and masks on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pageloom.attention.onnx.check import OnnxAttentionShape
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.backends.cuda.availability import DeviceFacts


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """Q, K, V and the output are `[B, heads, rows, width]`, in memory of that order or with heads beside each other.

    `key` and `value` hold the past too. `lengths` int64[B] are the valid keys of an external cache; `products` is the
    optional output `[B, heads, rows, keys]`."""

    facts: DeviceFacts
    spec: OnnxAttentionSpec
    shape: OnnxAttentionShape
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    lengths: torch.Tensor | None
    mask: torch.Tensor | None
    products: torch.Tensor | None

    @property
    def scale(self) -> float:
        return float(self.spec.logit_scale(self.shape.head_size))

    def keys(self) -> torch.Tensor:
        """int64[B]: the keys of each row of the batch, clamped to those there are."""
        total = self.shape.total_sequence_length
        if self.lengths is None:
            return torch.full((self.shape.batch_size,), total, device=self.query.device)
        return self.lengths.clamp(0, total)

    def visible(self) -> torch.Tensor:
        """bool `[B, 1, rows, keys]`: what neither padding nor the causal rule hides."""
        shape, device = self.shape, self.query.device
        keys = self.keys()[:, None, None]
        index = torch.arange(shape.total_sequence_length, device=device)
        rows = torch.arange(shape.q_sequence_length, device=device)[:, None]
        visible = (index < keys).expand(-1, shape.q_sequence_length, -1)
        if self.spec.is_causal:
            offset = keys - shape.q_sequence_length if shape.has_nonpad else shape.past_length
            visible = visible & (index <= rows + offset)
        return visible[:, None]


def strides(heads: torch.Tensor) -> tuple[int, int, int]:
    """Elements from one batch row, head and row to the next."""
    batch, head, row, _ = heads.stride()
    return batch, head, row
