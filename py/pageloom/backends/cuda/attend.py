"""Launches of the kernels: the append of new tokens, and attention over a cache in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pageloom.attention.cache_storage import CacheStorage
from pageloom.backends.cuda.availability import is_interpreted
from pageloom.backends.cuda.geometry import Geometry, Tile, parts_of, power_of_two, value_parts
from pageloom.backends.cuda.plans import Plan

SEARCHED_AT_ONCE = (64, 1024)
"""Sequences that a program compares with its token in one step: few, or many."""
PAIRED_BYTES = 8
"""Bits of the codes that are loaded two at a time, so that strides count pairs."""
_KINDS = {"int8": "int8", "int4": "int4", "float8e4m3fn": "float8"}


@dataclass(frozen=True, slots=True)
class Strides:
    """Elements from one sequence (or block of a cache), row and head to the next."""

    batch: int
    row: int
    head: int


@dataclass(frozen=True, slots=True)
class Cached:
    """The tensors of one call over a cache.

    - `inputs`: by ONNX name, on the device; `key`, `value`: new K and V, rows of `kv_row` elements apart, None where
      there are none; `query`: Q, rows `query_row` apart.
    - `key_cache`, `value_cache` and their strides; `output` `[.., num_heads, v_head_size]`; `log_sum_exp` or None.
    - `starts`, `lengths`, `query_lengths`, `table`: the integers, as `Lengths` says.
    - `scores`: where GroupQueryAttention's output_qk goes, or None.
    - `sequences`; `num_tokens`; `rows` new tokens of each where that is static, else 0; `limit` of the keys;
      `query_bound`, `kv_bound`: upper bounds, for one sequence.
    """

    inputs: Mapping[str, torch.Tensor]
    query: torch.Tensor
    key: torch.Tensor | None
    value: torch.Tensor | None
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    output: torch.Tensor
    log_sum_exp: torch.Tensor | None
    query_strides: Strides
    key_strides: Strides
    value_strides: Strides
    output_strides: Strides
    kv_row: int
    starts: torch.Tensor | None
    lengths: torch.Tensor | None
    query_lengths: torch.Tensor | None
    table: torch.Tensor | None
    sequences: int
    num_tokens: int
    rows: int
    limit: int
    fixed_past: int
    query_bound: int
    kv_bound: int
    num_blocks: int = 0
    scores: torch.Tensor | None = None

    @property
    def columns(self) -> int:
        return self.table.shape[1] if self.table is not None else 0

    @property
    def cos_rows(self) -> int:
        return self.inputs["cos_cache"].shape[0] if "cos_cache" in self.inputs else 1


def kind(storage: CacheStorage) -> str:
    """How the kernels name a cache's element."""
    return _KINDS.get(storage.element, "float")


def scaled(storage: CacheStorage) -> str:
    """How the kernels name the granularity of its scale."""
    return {"NONE": "none", "PER_TENSOR": "tensor", "PER_CHANNEL": "channel"}[storage.quant_type]


def _prologue(geometry: Geometry) -> dict[str, Any]:
    return {
        "K_KIND": kind(geometry.key_storage),
        "V_KIND": kind(geometry.value_storage),
        "K_SCALED": scaled(geometry.key_storage),
        "V_SCALED": scaled(geometry.value_storage),
        "RECIPROCAL": geometry.reciprocal,
        "NORM": geometry.norm,
        "ROTARY": geometry.rotary,
        "ROTARY_DIM": geometry.rotary_dim,
        "ROTARY_OFFSET": geometry.rotary_offset,
        "PAGED": geometry.block_size > 0,
        "LENGTHS": geometry.lengths,
        "HEAD": geometry.head_size,
        "HEAD_BLOCK": power_of_two(geometry.head_size, 16),
    }


def append(geometry: Geometry, call: Cached) -> tuple[torch.Tensor, Strides]:
    """Store the new tokens; returns Q as attention reads it, and its strides: the input, or
    `[num_tokens, num_heads, head_size]`."""
    from pageloom.backends.cuda.kernels.append import append_kernel  # noqa: PLC0415 - Triton is optional

    get = call.inputs.get
    heads_block = power_of_two(min(max(geometry.kv_num_heads, 1), max(1, 2048 // geometry.head_size), 16))
    sides = (call.key is not None) + (call.value is not None)
    sections = -(-geometry.kv_num_heads // heads_block) * sides
    prepared, strides = call.query, call.query_strides
    if geometry.prepares_query:
        width = geometry.num_heads * geometry.head_size
        strides = Strides(call.rows * width, width, geometry.head_size)
        sections += -(-geometry.num_heads // heads_block)
        prepared = torch.empty(
            (call.num_tokens, geometry.num_heads, geometry.head_size), dtype=call.query.dtype, device=call.query.device
        )
    if not sections:
        return prepared, strides
    k, v = call.key_strides, call.value_strides
    append_kernel[(call.num_tokens, sections)](
        call.query, call.key, call.value, prepared, call.key_cache, call.value_cache, call.output, call.log_sum_exp,
        call.starts, call.lengths, call.query_lengths, call.table, get("slot_mapping"), get("position_ids"),
        get("cos_cache"), get("sin_cache"), get("q_norm_weight"), get("k_norm_weight"), get("k_scale"), get("v_scale"),
        call.num_tokens, call.sequences, call.rows, call.limit, call.columns, call.num_blocks, call.cos_rows,
        geometry.num_heads * geometry.v_head_size,
        call.query_strides.row, call.kv_row, k.batch, k.row, k.head, v.batch, v.row, v.head,
        geometry.q_epsilon, geometry.k_epsilon, geometry.num_heads, geometry.kv_num_heads, geometry.block_shift,
        **_prologue(geometry),
        HEADS_BLOCK=heads_block,
        BATCH_BLOCK=SEARCHED_AT_ONCE[call.sequences > SEARCHED_AT_ONCE[0]],
        SIDES=sides,
        HAS_SLOTS=get("slot_mapping") is not None,
        HAS_POSITIONS=get("position_ids") is not None,
        HAS_LOG_SUM_EXP=call.log_sum_exp is not None,
        num_warps=2,
    )  # fmt: skip
    return prepared, strides


def attend(
    geometry: Geometry,
    call: Cached,
    query: torch.Tensor,
    query_strides: Strides,
    tile: Tile,
    plan: Plan,
    *,
    fused: bool = False,
    flags: torch.Tensor | None = None,
) -> None:
    """Attention of `query` over the cache, into the call's output.

    `fused` appends too, for calls of at most one new token a sequence; `flags` int32 restrict it to the sequences where
    they are not 0.
    """
    from pageloom.backends.cuda.kernels.attend import attend_kernel  # noqa: PLC0415 - Triton is optional

    get, device = call.inputs.get, call.output.device
    units_of_grid = call.num_tokens if fused and geometry.lengths == "paged" else call.sequences
    tiles = -(-call.query_bound * geometry.group // tile.block_m)
    units = units_of_grid * tiles * geometry.kv_num_heads
    keys, values = parts_of(geometry.head_size, geometry.key_storage), value_parts(geometry)
    partials = statistics = counters = None
    if tile.splits > 1:
        rows = units * tile.splits * tile.rows
        partials = torch.empty(rows * values.count * values.first, dtype=torch.float32, device=device)
        statistics = torch.empty(2 * rows, dtype=torch.float32, device=device)
        counters = plan.keep(("counters", units), lambda: torch.zeros(units, dtype=torch.int32, device=device))
    prologue = _prologue(geometry)
    if not fused:
        prologue |= {"NORM": False, "ROTARY": "none", "ROTARY_DIM": 0, "ROTARY_OFFSET": 0}
    q, o, k, v = query_strides, call.output_strides, call.key_strides, call.value_strides
    if values.paired == PAIRED_BYTES:
        v = Strides(v.batch // 2, v.row // 2, v.head // 2)
    attend_kernel[(units * tile.splits,)](
        query, call.key, call.value, call.key_cache, call.value_cache, call.output, call.log_sum_exp,
        partials, statistics, counters, flags,
        call.starts, call.lengths, call.query_lengths, call.table, get("cos_cache"), get("sin_cache"),
        get("q_norm_weight"), get("k_norm_weight"), get("k_scale"),
        get("k_scale") if geometry.latent else get("v_scale"), get("head_sink"),
        call.num_tokens, call.sequences, call.rows if flags is None else call.query_bound, call.limit, call.fixed_past,
        call.columns, call.num_blocks, call.cos_rows, tiles, q.batch, q.row, q.head, o.batch, o.row, o.head,
        call.kv_row, k.batch, k.row, k.head, v.batch, v.row, v.head,
        geometry.scale, geometry.softcap, geometry.q_epsilon, geometry.k_epsilon, geometry.kv_num_heads,
        geometry.window, geometry.block_shift,
        **prologue,
        GROUP=geometry.group,
        VALUE_HEAD=geometry.v_head_size,
        K0=keys.first, K1=keys.rest, K_PAIRED=keys.paired,
        V0=values.first, V_PARTS=values.count, V_PAIRED=values.paired,
        BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, SPLITS=tile.splits, ROWS=tile.rows,
        BATCH_BLOCK=SEARCHED_AT_ONCE[call.sequences > SEARCHED_AT_ONCE[0]],
        FUSED=fused,
        UNIFORM=call.num_tokens == call.sequences,
        CAUSAL=geometry.causal,
        WINDOWED=geometry.window > 0,
        SOFTCAP=geometry.softcap > 0,
        SINK=geometry.sink,
        HAS_LOG_SUM_EXP=call.log_sum_exp is not None,
        ONLY_FLAGGED=flags is not None,
        ASSEMBLY=not is_interpreted(),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )  # fmt: skip
