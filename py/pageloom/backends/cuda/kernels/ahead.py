"""Programmatic dependent launch: when the next kernel may start, and what it does until this one has ended."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.finish import key_range
from pageloom.backends.cuda.kernels.rows import rows_in_pages

LINE_BYTES = tl.constexpr(128)
"""Of the L2 cache."""


@triton.jit
def let_next_start(is_time):
    """Let the next kernel start, once all programs have come to where `is_time` or ended. It should be late: rows that
    the next one brings into the L2 cache are driven out by those that this one still reads."""
    tl.inline_asm_elementwise(
        "{ .reg .pred now; setp.ne.b32 now, $1, 0; @now griddepcontrol.launch_dependents; mov.b32 $0, 0; }",
        "=r,r",
        [is_time.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_early(
    key_cache, value_cache, lengths, table, sequence, split, splits, keys_ahead, limit, columns, num_blocks, window,
    block_shift, k_block, k_row, k_offset, v_block, v_row, v_offset,
    LENGTHS: tl.constexpr, PAGED: tl.constexpr, WIDE: tl.constexpr, WINDOWED: tl.constexpr, BLOCK_N: tl.constexpr,
    MOST_AHEAD: tl.constexpr, K_BYTES: tl.constexpr, V_BYTES: tl.constexpr,
):  # fmt: skip
    """`fetch_keys` of the first `keys_ahead` keys, at most MOST_AHEAD, of `split`, before the kernel before this one
    has ended. That may still be writing lengths and pages: what is read here says where to look and nothing else, and
    what is wrong leads to other rows of the caches."""
    keys = limit
    if LENGTHS != "fixed":
        keys = tl.load(lengths + sequence, cache_modifier=".cg") + (0 if LENGTHS == "external" else 1)
        keys = tl.minimum(tl.maximum(keys, 0), limit).to(tl.int32)
    _, low, high, _ = key_range(keys, keys - 1, 0, 0, window, split, splits, BLOCK_N, True, WINDOWED)
    fetch_keys(
        key_cache, value_cache, table, sequence, low, tl.minimum(high, low + keys_ahead), columns, num_blocks,
        block_shift, k_block, k_row, k_offset, v_block, v_row, v_offset, PAGED, WIDE, MOST_AHEAD, K_BYTES, V_BYTES,
    )  # fmt: skip


@triton.jit
def fetch_keys(
    key_cache, value_cache, table, sequence, low, high, columns, num_blocks, block_shift, k_block, k_row, k_offset,
    v_block, v_row, v_offset,
    PAGED: tl.constexpr, WIDE: tl.constexpr, KEYS: tl.constexpr, K_BYTES: tl.constexpr, V_BYTES: tl.constexpr,
):  # fmt: skip
    """Bring the rows of K and V of [`low`, `high`), at most KEYS, into the L2 cache, and the pages that say where they
    are, past the L1 cache, which would keep what a kernel before this one may still change."""
    positions = low + tl.arange(0, KEYS)
    wanted = positions < high
    pages = tl.where(wanted, 0, -1)
    if PAGED:
        row = table + sequence.to(tl.int64) * columns
        pages = tl.load(row + (positions >> block_shift), mask=wanted, other=-1, cache_modifier=".cg")
    k_rows, there = rows_in_pages(pages, sequence, positions, num_blocks, k_block, k_row, block_shift, PAGED, WIDE)
    v_rows, _ = rows_in_pages(pages, sequence, positions, num_blocks, v_block, v_row, block_shift, PAGED, WIDE)
    fetch_rows(key_cache + (k_rows + k_offset), there, K_BYTES)
    fetch_rows(value_cache + (v_rows + v_offset), there, V_BYTES)


@triton.jit
def fetch_rows(rows, there, BYTES: tl.constexpr):
    """Bring BYTES bytes from each of the pointers `rows` on, of those that are `there`, into the L2 cache."""
    for first in tl.static_range(0, BYTES, LINE_BYTES):
        tl.inline_asm_elementwise(
            "{ .reg .pred there; setp.ne.b32 there, $2, 0; @there prefetch.global.L2 [$1]; mov.b32 $0, 0; }",
            "=r,l,r",
            [rows.to(tl.int64) + first, there.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def as_loaded(cache, PAIRED: tl.constexpr):
    """The pointer to a cache in elements as they are loaded: pairs of codes where PAIRED is 8."""
    if PAIRED == 8:
        cache = cache.to(tl.pointer_type(tl.int16), bitcast=True)
    return cache
