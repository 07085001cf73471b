"""GroupQueryAttention's sliding window cache: the rows that it keeps, laid out so that a step can append to them.

A step's keys are the rows that the cache holds and the new ones, which may be more than it keeps. They lie in scratch,
where row j holds position `first_position` + j, and the latest go back to the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from pageloom.attention.group_query.check import GroupQueryAttentionShape
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.backends.cuda.cached import Cached


class SlidingCache:
    """One step's rows. Lengths stay on the device."""

    def __init__(
        self, spec: GroupQueryAttentionSpec, shape: GroupQueryAttentionShape, inputs: Mapping[str, torch.Tensor]
    ) -> None:
        self._spec, self._capacity = spec, shape.past_length
        self._pasts = inputs["past_key"], inputs["past_value"]
        rows = shape.sequence_length
        total = (inputs["seqlens_k"].long() + 1).clamp(min=0)
        if shape.has_query_seqlens:
            past = total - torch.minimum(inputs["query_seqlens"].long().clamp(0, rows), total)
        elif shape.first_prompt:
            past = torch.zeros_like(total)
        else:
            past = (total - rows).clamp(min=0)
        kept = self._resident(past)
        self.first_position = past - kept
        self._rows = kept + total - past
        self._kept_after = self._resident(total)
        self._positions = past[:, None] + torch.arange(rows, device=total.device)
        self.scratch = tuple(self._extended(cache, rows) for cache in self._pasts)

    def _resident(self, total: torch.Tensor) -> torch.Tensor:
        """`GroupQueryAttentionSpec.resident_length` of each sequence."""
        slack = self._capacity - self._spec.local_window_size + 1
        over = (total - self._capacity).clamp(min=0)
        return total - slack * ((over + slack - 1) // slack)

    @staticmethod
    def _extended(cache: torch.Tensor, rows: int) -> torch.Tensor:
        return torch.cat((cache, torch.zeros_like(cache[:, :, :1]).expand(-1, -1, rows, -1)), dim=2)

    def placed(self, call: Cached) -> Cached:
        """`call` over the scratch: its lengths count rows there, its positions are the tokens' own."""
        inputs = dict(call.inputs)
        if "cos_cache" in inputs and "position_ids" not in inputs:
            inputs["position_ids"] = self._positions.clamp(max=inputs["cos_cache"].shape[0] - 1)
        return replace(call, inputs=inputs, lengths=(self._rows - 1).int())

    def present(self, *, in_place: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The caches after the step: each sequence's latest rows first, and what was there before beyond them."""
        index = torch.arange(self._capacity, device=self._rows.device)
        source = (index + (self._rows - self._kept_after)[:, None]).clamp(max=self.scratch[0].shape[2] - 1)
        presents = []
        for past, scratch in zip(self._pasts, self.scratch, strict=True):
            picked = scratch.view(torch.uint8) if scratch.itemsize == 1 else scratch
            picked = picked.gather(2, source[:, None, :, None].expand(-1, past.shape[1], -1, past.shape[3])).view(
                past.dtype
            )
            presents.append(past.copy_(picked) if in_place else picked)
        return presents[0], presents[1]
