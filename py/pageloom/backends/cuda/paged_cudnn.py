"""PagedAttention on cuDNN: over pages gathered, or over the new tokens where there is nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pageloom.backends.cuda.attend import append, attend
from pageloom.backends.cuda.cached import Cached, Strides
from pageloom.backends.cuda.cudnn_sdpa import Causal, SdpaForm, run_sdpa
from pageloom.backends.cuda.geometry import Geometry, Tile, power_of_two
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.streams import join_side_stream, side_stream
from pageloom.backends.cuda.tensors import TORCH_DTYPES


@dataclass(frozen=True, slots=True)
class Dense:
    """K and V of each sequence in a row, `[B, kv_bound, kv_num_heads, ...]`; keys int32[B] of each sequence; and the
    sequences, int32[B] not 0, that these tensors do not stand for."""

    key: torch.Tensor
    value: torch.Tensor
    lengths: torch.Tensor
    flags: torch.Tensor

    @classmethod
    def over(cls, call: Cached, key: torch.Tensor, value: torch.Tensor) -> Dense:
        """Over tensors that are in a row as they are."""
        lengths, flags = torch.empty((2, call.sequences), dtype=torch.int32, device=key.device)
        return cls(key, value, lengths, flags)

    @classmethod
    def of_pages(cls, geometry: Geometry, call: Cached) -> Dense:
        """Over new tensors, to be filled."""
        shape = (2, call.sequences, call.kv_bound, geometry.kv_num_heads, geometry.head_size)
        key, value = torch.empty(shape, dtype=TORCH_DTYPES[geometry.dtype], device=call.output.device)
        return cls.over(call, key, value)


def gather(geometry: Geometry, call: Cached, dense: Dense, *, copies: bool) -> None:
    """Find the lengths and flags of `dense` and, where it `copies`, fill K and V from the pages."""
    from pageloom.backends.cuda.kernels.gather import gather_kernel  # noqa: PLC0415 - Triton is optional

    width = geometry.kv_num_heads * geometry.head_size
    block_n = max(1, min(16, 8192 // power_of_two(width)))
    chunks = -(-call.kv_bound // block_n) if copies else 1
    k, v = call.key_strides, call.value_strides
    gather_kernel[(call.sequences * chunks,)](
        call.key_cache, call.value_cache, dense.key, dense.value, dense.lengths, dense.flags,
        call.starts, call.lengths, call.table,
        call.num_tokens, call.query_bound, call.limit, call.columns, call.num_blocks, call.kv_bound, chunks,
        k.batch, k.row, v.batch, v.row, geometry.block_shift,
        WIDTH=width, WIDTH_BLOCK=power_of_two(width), BLOCK_N=block_n,
        COLUMNS_BLOCK=min(1024, power_of_two(call.columns, 2)), GATHERS=copies, num_warps=4,
    )  # fmt: skip


def run_fresh(geometry: Geometry, call: Cached, key: torch.Tensor, value: torch.Tensor, tile: Tile, plan: Plan) -> None:
    """cuDNN over new K and V while they go to their pages; what the pages spoil is left to our kernel."""
    dense = Dense.over(call, key, value)
    with side_stream(call.output.device):
        append(geometry, call)
        gather(geometry, call, dense, copies=False)
    _attend(geometry, call, call.query, call.query_strides, dense, call.kv_row, plan, causal="top-left")
    join_side_stream(call.output.device)
    attend(geometry, call, call.query, call.query_strides, tile, plan, flags=dense.flags)


def run_gathered(geometry: Geometry, call: Cached, tile: Tile, plan: Plan) -> None:
    """cuDNN over the pages gathered; what these cannot stand for is left to our kernel."""
    query, strides = append(geometry, call)
    dense = Dense.of_pages(geometry, call)
    gather(geometry, call, dense, copies=True)
    kv_row = geometry.kv_num_heads * geometry.head_size
    _attend(geometry, call, query, strides, dense, kv_row, plan, causal="bottom-right")
    attend(geometry, call, query, strides, tile, plan, flags=dense.flags)


def _attend(
    geometry: Geometry,
    call: Cached,
    query: torch.Tensor,
    strides: Strides,
    dense: Dense,
    kv_row: int,
    plan: Plan,
    *,
    causal: Causal,
) -> None:
    rows, out = call.query_bound, call.output_strides
    kv_strides = (call.kv_bound * kv_row, geometry.head_size, kv_row)
    form = SdpaForm(
        dtype=geometry.dtype,
        batch=call.sequences,
        num_heads=geometry.num_heads,
        kv_num_heads=geometry.kv_num_heads,
        rows=rows,
        kv_rows=call.kv_bound,
        head_size=geometry.head_size,
        v_head_size=geometry.v_head_size,
        q_strides=(rows * strides.row, strides.head, strides.row),
        k_strides=kv_strides,
        v_strides=kv_strides,
        o_strides=(rows * out.row, out.head, out.row),
        scale=geometry.scale,
        causal=causal if geometry.causal else "none",
        has_lengths=causal == "bottom-right",
    )
    lengths = dense.lengths if form.has_lengths else None
    run_sdpa(form, plan, query, dense.key, dense.value, call.output, lengths)
