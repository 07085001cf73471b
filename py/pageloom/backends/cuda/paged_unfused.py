"""The last tier of PagedAttention: the pages of each token gathered, then matrix products and a softmax."""

from __future__ import annotations

import torch

from pageloom.attention.cache_storage import CacheStorage
from pageloom.backends.cuda.cached import Cached
from pageloom.backends.cuda.geometry import Geometry
from pageloom.backends.cuda.unfused import GATHERED_BYTES, attend, loaded, spread_scale


def attend_unfused(geometry: Geometry, call: Cached, query: torch.Tensor) -> None:
    """Attention of `query` into the call's output, some tokens at a time so that what is gathered stays bounded."""
    head, width = geometry.head_size, geometry.num_heads * geometry.head_size
    query = query.reshape(call.num_tokens, -1)[:, :width].reshape(call.num_tokens, geometry.num_heads, head)
    rows = _Rows(geometry, call)
    bytes_each = 8 * call.kv_bound * geometry.kv_num_heads * head
    step = max(1, GATHERED_BYTES // bytes_each)
    for first in range(0, call.num_tokens, step):
        rows.attend(query, first, min(first + step, call.num_tokens))


class _Rows:
    """The token of each row of the output: its sequence, position and keys."""

    def __init__(self, geometry: Geometry, call: Cached) -> None:
        starts, past, table = (
            call.inputs[name] for name in ("cumulative_sequence_length", "past_seqlens", "block_table")
        )
        self._geometry, self._call = geometry, call
        tokens = torch.arange(call.num_tokens, device=starts.device)
        sequence = torch.searchsorted(starts[1:].contiguous(), tokens, right=True)
        owned = sequence < call.sequences
        sequence = sequence.clamp(max=call.sequences - 1)
        new = (starts[1:] - starts[:-1])[sequence].long()
        cached = past[sequence].long()
        takes_part = owned & (cached >= 0) & (cached + new <= call.limit)
        self._position = torch.where(takes_part, cached + tokens - starts[sequence], -1)
        self._keys = torch.where(takes_part, cached + new, 0)
        self._table = table
        self._sequence = sequence

    def attend(self, query: torch.Tensor, first: int, last: int) -> None:
        """Rows [first, last) of the output."""
        geometry, call = self._geometry, self._call
        position, keys = self._position[first:last, None], self._keys[first:last, None]
        index = torch.arange(call.kv_bound, device=query.device)
        table = self._table[self._sequence[first:last]].long()
        block = table[:, index // geometry.block_size]
        mapped = (block >= 0) & (block < call.num_blocks)
        visible = mapped & (index < keys)
        if geometry.causal:
            visible &= index <= position
        if geometry.window:
            visible &= index > position - geometry.window
        slots = torch.where(mapped, block * geometry.block_size + index % geometry.block_size, 0)
        key = self._gathered(call.key_cache, slots, "k", geometry.key_storage)
        if geometry.latent:
            value = key[..., : geometry.v_head_size]
        else:
            value = self._gathered(call.value_cache, slots, "v", geometry.value_storage)
        groups = (last - first, geometry.kv_num_heads, geometry.group)
        attended = attend(
            query[first:last].reshape(*groups, -1).float(),
            key.transpose(1, 2),
            value.transpose(1, 2),
            visible[:, None, None],
            scale=geometry.scale,
            softcap=geometry.softcap,
            sink=self._sink(),
        )
        takes_part = keys > 0
        call.output[first:last] = torch.where(takes_part, attended.output.reshape(last - first, -1), 0.0).to(
            call.output.dtype
        )
        if call.log_sum_exp is not None:
            statistics = attended.log_sum_exp.reshape(last - first, -1)
            call.log_sum_exp[first:last] = torch.where(takes_part, statistics, -torch.inf)

    def _gathered(self, cache: torch.Tensor, slots: torch.Tensor, side: str, storage: CacheStorage) -> torch.Tensor:
        geometry = self._geometry
        scale = self._call.inputs.get(f"{side}_scale")
        rows = cache.flatten(0, 1)
        stored = rows.view(torch.uint8)[slots].view(cache.dtype) if cache.itemsize == 1 else rows[slots]
        return loaded(
            stored, storage, spread_scale(scale, storage, geometry.kv_num_heads, geometry.head_size), geometry.head_size
        )

    def _sink(self) -> torch.Tensor | None:
        geometry = self._geometry
        if geometry.sink == "none":
            return None
        shape = (geometry.kv_num_heads, geometry.group)
        if geometry.sink == "zero":
            return torch.zeros(shape, device=self._call.output.device)
        return self._call.inputs["head_sink"].float().reshape(shape)
