"""The end of attention: splits merged, the denominator divided by, rows stored."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.parts import part_channels

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


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
    partials, statistics, active, ROWS: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr, PART: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """(acc of one part [ROWS, V0], top [ROWS], total [ROWS]) of the first `active` splits, CHUNK of them at a time."""
    row = tl.arange(0, ROWS)
    column = tl.arange(0, V0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, V0], tl.float32)
    for first in range(0, active, CHUNK):
        split = first + tl.arange(0, CHUNK)
        there = (split < active)[:, None] & (row >= 0)[None, :]
        place = split[:, None] * (2 * ROWS) + row[None, :]
        tops = tl.load(statistics + place, mask=there, other=float("-inf"))
        totals = tl.load(statistics + ROWS + place, mask=there, other=0.0)
        part = partials + ((split[:, None] * V_PARTS + PART) * ROWS + row[None, :]) * V0
        values = tl.load(part[:, :, None] + column[None, None, :], mask=there[:, :, None], other=0.0)
        highest = tl.maximum(top, tl.max(tops, 0))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        rescale = tl.exp2(top - safe)
        weight = tl.exp2(tops - safe[None, :])
        total = total * rescale + tl.sum(totals * weight, 0)
        acc = acc * rescale[:, None] + tl.sum(values * weight[:, :, None], 0)
        top = highest
    return acc, top, total
