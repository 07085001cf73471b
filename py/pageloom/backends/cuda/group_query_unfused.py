"""The last tier of GroupQueryAttention: matrix products and a softmax, and what only it does: bias and captured
scores."""

from __future__ import annotations

import torch

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.backends.cuda.cached import Cached
from pageloom.backends.cuda.geometry import Geometry
from pageloom.backends.cuda.unfused import attend, loaded, spread_scale


def attend_unfused(
    spec: GroupQueryAttentionSpec,
    geometry: Geometry,
    call: Cached,
    query: torch.Tensor,
    first_position: torch.Tensor | None = None,
) -> None:
    """Attention of the prepared `query` into the call's output, and the scores where they are wanted.

    Row j of the cache holds position `first_position[b]` + j, or j without it.
    """
    past, keys = _lengths(geometry, call, call.lengths)
    batch, rows = call.sequences, call.rows
    width = geometry.num_heads * geometry.head_size
    heads = query.reshape(batch, rows, -1)[..., :width].reshape(batch, rows, geometry.num_heads, geometry.head_size)
    heads = heads.transpose(1, 2).reshape(batch, geometry.kv_num_heads, geometry.group, rows, geometry.head_size)
    index = torch.arange(call.key_cache.shape[2], device=query.device)
    own = past[:, None] + torch.arange(rows, device=query.device)
    visible = (index < keys[:, None])[:, None].expand(batch, rows, -1)
    if geometry.causal:
        visible = visible & (index <= own[..., None])
    if geometry.window:
        visible = visible & (index > own[..., None] - geometry.window)
    bias = _bias(geometry, call, index if first_position is None else index + first_position[:, None])
    attended = attend(
        heads.float(),
        _stored(geometry, call, call.key_cache, "k", geometry.key_storage)[:, :, None],
        _stored(geometry, call, call.value_cache, "v", geometry.value_storage)[:, :, None],
        visible[:, None, None],
        scale=geometry.scale,
        softcap=geometry.softcap,
        bias=bias,
        sink=_sink(geometry, call),
    )
    output = attended.output.reshape(batch, geometry.num_heads, rows, -1).transpose(1, 2)
    call.output.copy_(output.reshape(call.output.shape))
    if call.scores is not None:
        seen = visible[:, None, None]
        shown = torch.where(seen, attended.logits, 0.0) if spec.qk_output == 1 else attended.weights
        call.scores.copy_(shown.reshape(batch, geometry.num_heads, rows, -1)[..., : call.scores.shape[-1]])


def _lengths(geometry: Geometry, call: Cached, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(past, keys) int64[B], clamped as the contract has it."""
    keys = (lengths.long() + 1).clamp(0, call.limit)
    if geometry.lengths == "prompt":
        return torch.zeros_like(keys), keys
    if call.query_lengths is not None:
        new = torch.minimum(call.query_lengths.long().clamp(0, call.rows), keys)
        return keys - new, keys
    return (keys - call.rows).clamp(min=0), keys


def _stored(geometry: Geometry, call: Cached, cache: torch.Tensor, side: str, storage: CacheStorage) -> torch.Tensor:
    scale = spread_scale(call.inputs.get(f"{side}_scale"), storage, geometry.kv_num_heads, geometry.head_size)
    return loaded(cache, storage, None if scale is None else scale[:, None], geometry.head_size)


def _bias(geometry: Geometry, call: Cached, columns: torch.Tensor) -> torch.Tensor | None:
    """float32 `[B or 1, kv heads or 1, group or 1, rows, L]` of the cache's rows at the bias's `columns`."""
    bias = call.inputs.get("attention_bias")
    if bias is None:
        return None
    last = bias.shape[-1] - 1
    if columns.dim() == 1:
        picked = bias[..., columns.clamp(max=last)]
    else:
        picked = bias.expand(call.sequences, -1, -1, -1).gather(
            -1, columns.clamp(0, last)[:, None, None].expand(call.sequences, *bias.shape[1:3], -1)
        )
    heads = (geometry.kv_num_heads, geometry.group) if bias.shape[1] > 1 else (1, 1)
    return picked.reshape(picked.shape[0], *heads, *picked.shape[2:]).float()


def _sink(geometry: Geometry, call: Cached) -> torch.Tensor | None:
    """float32 `[kv heads, group, 1]`."""
    shape = (geometry.kv_num_heads, geometry.group, 1)
    if geometry.sink == "none":
        return None
    if geometry.sink == "zero":
        return torch.zeros(shape, device=call.output.device)
    return call.inputs["head_sink"].float().reshape(shape)
