"""The two ends of attention over split keys: which of them a program takes, and how parts are merged and stored."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.parts import part_channels

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def key_range(
    keys, past, first_token, last_token, window, split, splits, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
):  # fmt: skip
    """(first key that a token of [first_token, last_token] sees; keys [low, high) of this split, low a multiple of
    BLOCK_N; splits that have any)."""
    begin = 0
    end = keys
    if CAUSAL:
        end = tl.minimum(end, past + last_token + 1)
    if WINDOWED:
        begin = tl.maximum(past + first_token + 1 - window, 0)
    first_block = begin // BLOCK_N
    blocks = tl.maximum(tl.cdiv(end, BLOCK_N) - first_block, 0)
    blocks_each = tl.maximum(tl.cdiv(blocks, splits), 1)
    active = tl.maximum(tl.cdiv(blocks, blocks_each), 1)
    low = (first_block + split * blocks_each) * BLOCK_N
    high = tl.minimum(low + blocks_each * BLOCK_N, end)
    return begin, low, high, active


@triton.jit
def finish_part(
    output, acc, row_offsets, inside, index, factor, v_scale, head, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr,
    PART: tl.constexpr, PAIRED: tl.constexpr, FIRST: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    channels = part_channels(index, PART, PAIRED, FIRST)
    mask = inside[:, None] & (channels < VALUE_HEAD)[None, :]
    result = acc * factor[:, None]
    if SCALED == "channel":
        result *= tl.load(v_scale + head * HEAD + channels, mask=channels < VALUE_HEAD, other=0.0)[None, :]
    elif SCALED == "tensor":
        result *= tl.load(v_scale)
    tl.store(output + row_offsets[:, None] + channels[None, :], result.to(output.dtype.element_ty), mask=mask)


@triton.jit
def finish(
    output, log_sum_exp, acc0, acc1, top, total, token, query_head, inside, sinks, v_scale, head, sequence, start,
    valid, o_batch, o_row, o_head,
    num_heads, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr,
    V_PAIRED: tl.constexpr, V_SCALED: tl.constexpr, SINK: tl.constexpr, HAS_LOG_SUM_EXP: tl.constexpr,
):  # fmt: skip
    """Divide by the denominator, the sink's share in it, and store. `top` and `total` are of base 2."""
    scale = tl.full(top.shape, 1.0, tl.float32)
    if SINK != "none":
        sink = tl.zeros(top.shape, tl.float32)
        if SINK == "given":
            sink = tl.load(sinks + query_head, mask=inside, other=0.0).to(tl.float32) * LOG2_E
        highest = tl.maximum(top, sink)
        scale = tl.exp2(top - highest)
        total = total * scale + tl.exp2(sink - highest)
        top = highest
    factor = tl.where(total > 0.0, scale / tl.where(total > 0.0, total, 1.0), 0.0)
    rows = sequence.to(tl.int64) * o_batch + (start + token).to(tl.int64) * o_row + query_head.to(tl.int64) * o_head
    index = tl.arange(0, V0)
    finish_part(output, acc0, rows, inside, index, factor, v_scale, head,
                HEAD, VALUE_HEAD, 0, V_PAIRED, V0, V_SCALED)  # fmt: skip
    if V_PARTS == 2:
        finish_part(output, acc1, rows, inside, index, factor, v_scale, head,
                    HEAD, VALUE_HEAD, 1, V_PAIRED, V0, V_SCALED)  # fmt: skip
    if HAS_LOG_SUM_EXP:
        logarithm = tl.where(total > 0.0, (top + tl.log2(tl.where(total > 0.0, total, 1.0))) * LN_2, float("-inf"))
        logarithm = tl.where(valid, logarithm, float("-inf"))
        tl.store(log_sum_exp + (start + token) * num_heads + query_head, logarithm, mask=inside)


@triton.jit
def merge(
    partials, statistics, active, ROWS: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr, MERGED: tl.constexpr
):
    """(acc of part 0, of part 1 or part 0 again, [ROWS, V0]; top [ROWS], total [ROWS]) of the first `active` splits,
    MERGED of them loaded at a time."""
    row = tl.arange(0, ROWS)
    column = tl.arange(0, V0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc0 = tl.zeros([ROWS, V0], tl.float32)
    acc1 = acc0
    for first in range(0, active, MERGED):
        split = first + tl.arange(0, MERGED)
        there = (split < active)[:, None] & (row >= 0)[None, :]
        place = split[:, None] * (2 * ROWS) + row[None, :]
        tops = tl.load(statistics + place, mask=there, other=float("-inf"))
        totals = tl.load(statistics + ROWS + place, mask=there, other=0.0)
        here = (partials + (split[:, None] * V_PARTS * ROWS + row[None, :]) * V0)[:, :, None] + column[None, None, :]
        values0 = tl.load(here, mask=there[:, :, None], other=0.0)
        if V_PARTS == 2:
            values1 = tl.load(here + ROWS * V0, mask=there[:, :, None], other=0.0)
        highest = tl.maximum(top, tl.max(tops, 0))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        rescale = tl.exp2(top - safe)
        weight = tl.exp2(tops - safe[None, :])
        total = total * rescale + tl.sum(totals * weight, 0)
        acc0 = acc0 * rescale[:, None] + tl.sum(values0 * weight[:, :, None], 0)
        if V_PARTS == 2:
            acc1 = acc1 * rescale[:, None] + tl.sum(values1 * weight[:, :, None], 0)
        top = highest
    return acc0, acc1, top, total


@triton.jit
def conclude(
    output, log_sum_exp, partials, statistics, counters, acc0, acc1, top, total, unit, split, splits, active, first_row,
    head, sequence, start, new, valid, sinks, v_scale, o_batch, o_row, o_head, kv_heads,
    GROUP: tl.constexpr, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr,
    V_PAIRED: tl.constexpr, V_SCALED: tl.constexpr, SINK: tl.constexpr, HAS_LOG_SUM_EXP: tl.constexpr,
    BLOCK_M: tl.constexpr, ROWS: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """Store the BLOCK_M rows from `first_row` on where one split has all keys. Otherwise leave its part in `partials`
    and `statistics`, of ROWS rows; the last split of a unit to come, by `counters`, merges all, MERGED of them at
    a time. MERGED is 0 where there is one split."""
    v_index = tl.arange(0, V0)
    if MERGED == 0 or active == 1:
        row = first_row + tl.arange(0, BLOCK_M)
        token = row // GROUP
        finish(output, log_sum_exp, acc0, acc1, top, total, token, head * GROUP + row % GROUP, token < new, sinks,
               v_scale, head, sequence, start, valid, o_batch, o_row, o_head, kv_heads * GROUP, HEAD, VALUE_HEAD, V0,
               V_PARTS, V_PAIRED, V_SCALED, SINK, HAS_LOG_SUM_EXP)  # fmt: skip
    else:
        place = tl.arange(0, BLOCK_M)
        part = partials + unit.to(tl.int64) * (splits * V_PARTS * ROWS * V0)
        statistic = statistics + unit.to(tl.int64) * (splits * 2 * ROWS)
        tl.store(statistic + split * (2 * ROWS) + place, top, mask=place < ROWS)
        tl.store(statistic + split * (2 * ROWS) + ROWS + place, total, mask=place < ROWS)
        here = part + (split * V_PARTS * ROWS + place[:, None]) * V0 + v_index[None, :]
        tl.store(here, acc0, mask=(place < ROWS)[:, None])
        if V_PARTS == 2:
            tl.store(here + ROWS * V0, acc1, mask=(place < ROWS)[:, None])
        tl.debug_barrier()
        arrived = tl.atomic_add(counters + unit, 1, sem="acq_rel")
        if arrived == active - 1:
            tl.store(counters + unit, 0)
            merged0, merged1, all_top, all_total = merge(part, statistic, active, ROWS, V0, V_PARTS, MERGED)
            kept = first_row + tl.arange(0, ROWS)
            token = kept // GROUP
            finish(output, log_sum_exp, merged0, merged1, all_top, all_total, token, head * GROUP + kept % GROUP,
                   token < new, sinks, v_scale, head, sequence, start, valid, o_batch, o_row, o_head, kv_heads * GROUP,
                   HEAD, VALUE_HEAD, V0, V_PARTS, V_PAIRED, V_SCALED, SINK, HAS_LOG_SUM_EXP)  # fmt: skip
