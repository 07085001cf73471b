"""Attention over a cache in place, paged or not: online softmax, keys split over programs, their parts merged.

A program takes a tile of query rows of one sequence and one K/V head. The rows of a tile are (token, query head of the
group), so K and V are loaded once for the whole group. Channels go in one or two parts, each a power of two: the even
and the odd channels of packed int4 codes, or a wide head's first 512 and the rest.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.finish import LOG2_E, conclude, key_range
from pageloom.backends.cuda.kernels.parts import load_parts, query_parts, raw_query
from pageloom.backends.cuda.kernels.rows import cache_rows, sequence_lengths

STATIC = [
    "num_tokens", "batch", "rows", "limit", "fixed_past", "columns", "num_blocks", "tiles", "splits", "kv_heads",
    "window", "block_shift",
]  # fmt: skip
"""Integers that no program is compiled apart for."""


@triton.jit(do_not_specialize=STATIC)
def attend_kernel(
    query, key_cache, value_cache, output, log_sum_exp, partials, statistics, counters, flags,
    starts, lengths, query_lengths, table, k_scale, v_scale, sinks,
    num_tokens, batch, rows, limit, fixed_past, columns, num_blocks, tiles,
    q_batch, q_row, q_head, o_batch, o_row, o_head, k_block, k_row, k_head, v_block, v_row, v_head,
    scale, softcap, splits, kv_heads, window, block_shift,
    GROUP: tl.constexpr, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K_PAIRED: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr,
    V_PAIRED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr, MERGED: tl.constexpr,
    PAGED: tl.constexpr, WIDE: tl.constexpr, HEAD_BLOCK: tl.constexpr, LENGTHS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, SOFTCAP: tl.constexpr, SINK: tl.constexpr, K_SCALED: tl.constexpr, V_SCALED: tl.constexpr,
    HAS_LOG_SUM_EXP: tl.constexpr, ONLY_FLAGGED: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """ONLY_FLAGGED: a library has computed `rows` of every sequence, one after another. Sequences whose flag is not 0
    are computed anew, and tokens that belong to none are set to 0.

    Q was prepared. The grid is K/V heads (fastest), splits, tiles, sequences.
    """
    program = tl.program_id(0)
    head = program % kv_heads
    program = program // kv_heads
    split = program % splits
    program = program // splits
    tile = program % tiles
    sequence = program // tiles
    unit = (sequence * tiles + tile) * kv_heads + head
    if ONLY_FLAGGED:
        owned = tl.load(starts + batch)
        if owned < num_tokens:
            place = tile * BLOCK_M + tl.arange(0, BLOCK_M)
            nominal = sequence * rows + place // GROUP
            cleared = (place // GROUP < rows) & (nominal >= owned)
            target = nominal.to(tl.int64) * o_row + (head * GROUP + place % GROUP) * o_head
            index = tl.arange(0, V0)
            tl.store(output + target[:, None] + index[None, :], tl.zeros([BLOCK_M, V0], output.dtype.element_ty),
                     mask=cleared[:, None] & (index < VALUE_HEAD)[None, :])  # fmt: skip
        if tl.load(flags + sequence) == 0:
            return

    start, new, past, keys = sequence_lengths(
        sequence, starts, lengths, query_lengths, num_tokens, rows, limit, fixed_past, LENGTHS
    )
    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = row // GROUP
    inside = token < new
    first_token = tile * BLOCK_M // GROUP
    last_token = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, new - 1)
    if first_token >= new:
        return
    begin, low, high, active = key_range(
        keys, past, first_token, last_token, window, split, splits, BLOCK_N, CAUSAL, WINDOWED
    )
    if split >= active:
        return

    DTYPE: tl.constexpr = output.dtype.element_ty
    position = past + token
    query_head = head * GROUP + row % GROUP
    source = query + sequence.to(tl.int64) * q_batch + (start + token).to(tl.int64) * q_row
    source += query_head.to(tl.int64) * q_head
    x0, x1 = raw_query(source, inside, HEAD, K0, K1, K_PAIRED)
    q0, q0_low, q1, q1_low, scale = query_parts(
        x0, x1, source, inside, 0, k_scale, k_scale, k_scale, 0.0, k_scale, head, scale,
        HEAD, HEAD_BLOCK, K0, K1, K_PAIRED, K_SCALED, False, "none", 0, 0, DTYPE,
    )  # fmt: skip

    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc0 = tl.zeros([BLOCK_M, V0], tl.float32)
    acc1 = tl.zeros([BLOCK_M, V0], tl.float32)
    for first in range(low, high, BLOCK_N):
        positions = first + tl.arange(0, BLOCK_N)
        wanted = (positions >= begin) & (positions < high)
        k_rows, seen = cache_rows(
            table, sequence, positions, wanted, columns, num_blocks, k_block, k_row, block_shift, PAGED, WIDE
        )
        k_rows += head * k_head
        v_rows, _ = cache_rows(
            table, sequence, positions, wanted, columns, num_blocks, v_block, v_row, block_shift, PAGED, WIDE
        )
        v_rows += head * v_head
        k0, k1 = load_parts(key_cache, k_rows, seen, HEAD, K0, K1, K_PAIRED, DTYPE, ASSEMBLY, False, False)
        logits = tl.dot(q0, tl.trans(k0))
        if K_SCALED == "channel":
            logits = tl.dot(q0_low, tl.trans(k0), logits)
        if K1 > 0:
            logits = tl.dot(q1, tl.trans(k1), logits)
            if K_SCALED == "channel":
                logits = tl.dot(q1_low, tl.trans(k1), logits)
        logits = logits * scale
        if SOFTCAP:
            logits = softcap * (1.0 - 2.0 / (tl.exp2(logits * (2.0 * LOG2_E / softcap)) + 1.0))
        logits = logits * LOG2_E
        visible = seen[None, :] & inside[:, None]
        if CAUSAL:
            visible = visible & (positions[None, :] <= position[:, None])
        if WINDOWED:
            visible = visible & (positions[None, :] > position[:, None] - window)
        logits = tl.where(visible, logits, float("-inf"))
        highest = tl.maximum(top, tl.max(logits, 1))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        rescale = tl.exp2(top - safe)
        weights = tl.exp2(logits - safe[:, None])
        total = total * rescale + tl.sum(weights, 1)
        weights = weights.to(DTYPE)
        v0, v1 = load_parts(value_cache, v_rows, seen, VALUE_HEAD, V0, 0, V_PAIRED, DTYPE, ASSEMBLY, False, False)
        acc0 = tl.dot(weights, v0, acc0 * rescale[:, None])
        if V_PARTS == 2:
            acc1 = tl.dot(weights, v1, acc1 * rescale[:, None])
        top = highest

    conclude(output, log_sum_exp, partials, statistics, counters, acc0, acc1, top, total, unit, split, splits, active,
             tile * BLOCK_M, head, sequence, start, new, keys > 0, sinks, v_scale, o_batch, o_row, o_head, kv_heads,
             GROUP, HEAD, VALUE_HEAD, V0, V_PARTS, V_PAIRED, V_SCALED, SINK, HAS_LOG_SUM_EXP,
             BLOCK_M, ROWS, MERGED)  # fmt: skip
