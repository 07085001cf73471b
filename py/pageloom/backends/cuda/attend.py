"""Launches of the kernels: the append of new tokens, and attention over a cache in place."""

from __future__ import annotations

from typing import Any

import torch

from pageloom.backends.cuda.availability import is_interpreted, overlaps_launches
from pageloom.backends.cuda.cached import SEARCHED_AT_ONCE, Cached, Strides, prologue
from pageloom.backends.cuda.geometry import PAIRED_BYTES, Geometry, Parts, Tile, parts_of, power_of_two, value_parts
from pageloom.backends.cuda.plans import Plan

MOST_AHEAD = 128
"""Keys of a split that a decode asks for before the kernel before it has ended."""
MOST_NARROW = 2**31 - 1
"""Elements of a cache that offsets of 32 bits reach."""


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
        **prologue(geometry),
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

    `fused`, for tiles of a decode, appends too, for calls of at most one new token a sequence; `flags` int32, for other
    tiles, restrict it to the sequences where they are not 0.
    """
    launch = _Launch(geometry, call, query, query_strides, tile, plan)
    if tile.by_warp:
        launch.decode(fused=fused)
    else:
        launch.tiles(flags)


class _Launch:
    """What the two attention kernels are given alike."""

    def __init__(
        self,
        geometry: Geometry,
        call: Cached,
        query: torch.Tensor,
        query_strides: Strides,
        tile: Tile,
        plan: Plan,
    ) -> None:
        self._geometry, self._call, self._query, self._tile, self._plan = geometry, call, query, tile, plan
        self._keys, self._values = parts_of(geometry.head_size, geometry.key_storage), value_parts(geometry)
        k, v = _loaded(call.key_strides, self._keys), _loaded(call.value_strides, self._values)
        q, o = query_strides, call.output_strides
        self._strides = (q.batch, q.row, q.head, o.batch, o.row, o.head)
        self._cache_strides = (k.batch, k.row, k.head, v.batch, v.row, v.head)
        self._are_alike = k == v

    def decode(self, *, fused: bool) -> None:
        """The kernel of few query rows."""
        from pageloom.backends.cuda.kernels.decode import decode_kernel  # noqa: PLC0415 - Triton is optional

        geometry, call, get = self._geometry, self._call, self._call.inputs.get
        device = call.output.device
        units = (call.num_tokens if fused and geometry.lengths == "paged" else call.sequences) * geometry.kv_num_heads
        is_uniform = call.num_tokens == call.sequences
        what = prologue(geometry)
        if not fused:
            what |= {"NORM": False, "ROTARY": "none", "ROTARY_DIM": 0, "ROTARY_OFFSET": 0}
        overlaps = overlaps_launches(device)
        # After an append of its own there is nothing to overlap with, and of ragged rows none knows its sequence.
        asks_ahead = overlaps and self._tile.keys_ahead > 0 and (is_uniform if fused else call.key is None)
        decode_kernel[(units * self._tile.splits,)](
            self._query, call.key, call.value, call.key_cache, call.value_cache, call.output, call.log_sum_exp,
            *self._workspace(units),
            call.starts, call.lengths, call.query_lengths, call.table, get("cos_cache"), get("sin_cache"),
            get("q_norm_weight"), get("k_norm_weight"), get("k_scale"), self._value_scale(), get("head_sink"),
            call.num_tokens, call.sequences, call.rows, call.limit, call.fixed_past, call.columns, call.num_blocks,
            call.cos_rows, *self._strides, call.kv_row, *self._cache_strides,
            geometry.scale, geometry.softcap, geometry.q_epsilon, geometry.k_epsilon, self._tile.splits,
            geometry.kv_num_heads, geometry.window, geometry.block_shift, self._tile.keys_ahead, self._tile.keys_left,
            **what,
            **self._shapes(),
            WARPS=self._tile.num_warps,
            ALIKE=self._are_alike,
            BATCH_BLOCK=SEARCHED_AT_ONCE[call.sequences > SEARCHED_AT_ONCE[0]],
            FUSED=fused,
            UNIFORM=is_uniform,
            OVERLAPS=overlaps,
            MOST_AHEAD=MOST_AHEAD if asks_ahead else 0,
            **({"launch_pdl": True} if overlaps else {}),
        )  # fmt: skip

    def tiles(self, flags: torch.Tensor | None) -> None:
        """The kernel of tiles of query rows."""
        from pageloom.backends.cuda.kernels.attend import attend_kernel  # noqa: PLC0415 - Triton is optional

        geometry, call, get = self._geometry, self._call, self._call.inputs.get
        tiles = -(-call.query_bound * geometry.group // self._tile.block_m)
        units = call.sequences * tiles * geometry.kv_num_heads
        what = prologue(geometry)
        attend_kernel[(units * self._tile.splits,)](
            self._query, call.key_cache, call.value_cache, call.output, call.log_sum_exp, *self._workspace(units),
            flags, call.starts, call.lengths, call.query_lengths, call.table,
            get("k_scale"), self._value_scale(), get("head_sink"),
            call.num_tokens, call.sequences, call.rows if flags is None else call.query_bound, call.limit,
            call.fixed_past, call.columns, call.num_blocks, tiles, *self._strides, *self._cache_strides,
            geometry.scale, geometry.softcap, self._tile.splits, geometry.kv_num_heads,
            geometry.window, geometry.block_shift,
            **{name: what[name] for name in ("K_SCALED", "V_SCALED", "PAGED", "LENGTHS", "HEAD", "HEAD_BLOCK")},
            **self._shapes(),
            ONLY_FLAGGED=flags is not None,
        )  # fmt: skip

    def _workspace(self, units: int) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """(partial sums, their statistics, counters of the splits that have come), None where nothing is split."""
        tile, device = self._tile, self._call.output.device
        if tile.splits == 1:
            return None, None, None
        rows = units * tile.splits * tile.rows
        partials = torch.empty(rows * self._values.count * self._values.first, dtype=torch.float32, device=device)
        statistics = torch.empty(2 * rows, dtype=torch.float32, device=device)
        counters = self._plan.keep(("counters", units), lambda: torch.zeros(units, dtype=torch.int32, device=device))
        return partials, statistics, counters

    def _value_scale(self) -> torch.Tensor | None:
        return self._call.inputs.get("k_scale" if self._geometry.latent else "v_scale")

    def _shapes(self) -> dict[str, Any]:
        geometry, call, tile = self._geometry, self._call, self._tile
        keys, values = self._keys, self._values
        return {
            "GROUP": geometry.group,
            "VALUE_HEAD": geometry.v_head_size,
            "K0": keys.first,
            "K1": keys.rest,
            "K_PAIRED": keys.paired,
            "V0": values.first,
            "V_PARTS": values.count,
            "V_PAIRED": values.paired,
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "MERGED": tile.merged if tile.splits > 1 else 0,
            "ROWS": tile.rows,
            "WIDE": max(call.key_cache.numel(), call.value_cache.numel()) > MOST_NARROW,
            "CAUSAL": geometry.causal,
            "WINDOWED": geometry.window > 0,
            "SOFTCAP": geometry.softcap > 0,
            "SINK": geometry.sink,
            "HAS_LOG_SUM_EXP": call.log_sum_exp is not None,
            "ASSEMBLY": not is_interpreted(),
            "num_warps": tile.num_warps,
            "num_stages": tile.num_stages,
        }


def _loaded(strides: Strides, parts: Parts) -> Strides:
    """Strides in elements as the kernels load them."""
    unit = 2 if parts.paired == PAIRED_BYTES else 1
    return Strides(strides.batch // unit, strides.row // unit, strides.head // unit)
