"""Attention of a few query rows over many keys, which are split over programs and, within one, over its warps.

The keys of a step lie along a leading axis, one slice a warp, and so do the softmax's statistics and the sums: a warp
waits for no other before the end, where their parts are merged, and then those of the splits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.ahead import as_loaded, fetch_early, let_next_start
from pageloom.backends.cuda.kernels.append import append_side, raw_side
from pageloom.backends.cuda.kernels.finish import LOG2_E, conclude, key_range
from pageloom.backends.cuda.kernels.parts import CODE_OFFSET, has_offset, load_parts, query_parts, raw_query
from pageloom.backends.cuda.kernels.rows import (
    await_predecessor,
    pages_of,
    rows_in_pages,
    sequence_lengths,
    sequence_of_token,
)

STATIC = [
    "num_tokens", "batch", "rows", "limit", "fixed_past", "columns", "num_blocks", "cos_rows", "splits", "kv_heads",
    "window", "block_shift", "keys_ahead", "keys_left",
]  # fmt: skip
"""Integers that no program is compiled apart for."""


@triton.jit(do_not_specialize=STATIC)
def decode_kernel(
    query, key, value, key_cache, value_cache, output, log_sum_exp, partials, statistics, counters,
    starts, lengths, query_lengths, table, cos, sin, q_weight, k_weight, k_scale, v_scale, sinks,
    num_tokens, batch, rows, limit, fixed_past, columns, num_blocks, cos_rows,
    q_batch, q_row, q_head, o_batch, o_row, o_head, kv_row, k_block, k_row, k_head, v_block, v_row, v_head,
    scale, softcap, q_epsilon, k_epsilon, splits, kv_heads, window, block_shift, keys_ahead, keys_left,
    GROUP: tl.constexpr, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K_PAIRED: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr,
    V_PAIRED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WARPS: tl.constexpr, ROWS: tl.constexpr,
    MERGED: tl.constexpr, PAGED: tl.constexpr, WIDE: tl.constexpr, ALIKE: tl.constexpr, BATCH_BLOCK: tl.constexpr,
    HEAD_BLOCK: tl.constexpr, LENGTHS: tl.constexpr, FUSED: tl.constexpr, UNIFORM: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, SOFTCAP: tl.constexpr, SINK: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr,
    K_SCALED: tl.constexpr, V_SCALED: tl.constexpr, RECIPROCAL: tl.constexpr, NORM: tl.constexpr, ROTARY: tl.constexpr,
    ROTARY_DIM: tl.constexpr, ROTARY_OFFSET: tl.constexpr, HAS_LOG_SUM_EXP: tl.constexpr, ASSEMBLY: tl.constexpr,
    OVERLAPS: tl.constexpr, MOST_AHEAD: tl.constexpr,
):  # fmt: skip
    """FUSED: each sequence has at most one new token, whose Q is prepared, and whose K and V are stored, here.

    ALIKE: K and V have the same strides, in elements as they are loaded. The grid is K/V heads (fastest), splits,
    sequences (tokens if FUSED over pages). OVERLAPS: `keys_ahead` are asked for before the kernel before has ended,
    and the next may start when all splits have at most `keys_left`.
    """
    program = tl.program_id(0)
    head = program % kv_heads
    program = program // kv_heads
    split = program % splits
    sequence = program // splits
    unit = sequence * kv_heads + head

    K_BYTES: tl.constexpr = HEAD * key_cache.dtype.element_ty.primitive_bitwidth // (16 if K_PAIRED == 4 else 8)
    V_BYTES: tl.constexpr = VALUE_HEAD * value_cache.dtype.element_ty.primitive_bitwidth // (16 if V_PAIRED == 4 else 8)
    if MOST_AHEAD > 0:
        fetch_early(
            as_loaded(key_cache, K_PAIRED), as_loaded(value_cache, V_PAIRED), lengths, table, sequence, split, splits,
            keys_ahead, limit, columns, num_blocks, window, block_shift, k_block, k_row, head * k_head, v_block, v_row,
            head * v_head, LENGTHS, PAGED, WIDE, WINDOWED, BLOCK_N, MOST_AHEAD, K_BYTES, V_BYTES,
        )  # fmt: skip
    await_predecessor(OVERLAPS)

    token_of_program = sequence
    if FUSED and LENGTHS == "paged" and not UNIFORM:
        sequence = sequence_of_token(sequence, starts, batch, BATCH_BLOCK)
    is_owned = sequence < batch
    owner = tl.minimum(sequence, batch - 1)
    start, new, past, keys = sequence_lengths(
        owner, starts, lengths, query_lengths, num_tokens, rows, limit, fixed_past, LENGTHS
    )
    if FUSED and LENGTHS == "paged":
        past = past + token_of_program - start
        start = token_of_program
        keys = tl.where(is_owned & (keys > 0) & (past >= 0) & (past < limit), past + 1, 0)
        new = 1
    # What does not depend on the lengths is loaded while they are.
    row = tl.arange(0, BLOCK_M)
    token = row // GROUP
    inside = token < new
    query_head = head * GROUP + row % GROUP
    source = query + owner.to(tl.int64) * q_batch + (start + token).to(tl.int64) * q_row
    source += query_head.to(tl.int64) * q_head
    x0, x1 = raw_query(source, inside, HEAD, K0, K1, K_PAIRED)
    if FUSED:
        one = tl.arange(0, 1)
        offset = (start.to(tl.int64) if LENGTHS == "paged" else owner.to(tl.int64)) * kv_row + (head + one) * HEAD
        k_new, k_odd = raw_side(key + offset, one == 0, HEAD, HEAD_BLOCK, K_KIND)
        v_new, v_odd = raw_side(value + offset, one == 0, HEAD, HEAD_BLOCK, V_KIND)
    if new <= 0:
        return
    last_token = tl.minimum((BLOCK_M - 1) // GROUP, new - 1)
    begin, low, high, active = key_range(keys, past, 0, last_token, window, split, splits, BLOCK_N, CAUSAL, WINDOWED)
    if split >= active:
        return

    EACH: tl.constexpr = BLOCK_N // WARPS
    places = tl.arange(0, WARPS)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    wanted = (low + places >= begin) & (low + places < high)
    pages = pages_of(table, owner, low + places, wanted, columns, block_shift, PAGED)
    # What the split that appends, which has no less to do than others, and the last to merge would wait for.
    if FUSED:
        own = keys - 1
        own_page = pages_of(table, owner, own, own >= 0, columns, block_shift, PAGED)
    value_scale = 1.0
    REST_SCALED: tl.constexpr = "none" if V_SCALED == "tensor" else V_SCALED
    if V_SCALED == "tensor":
        value_scale = tl.load(v_scale)
    DTYPE: tl.constexpr = output.dtype.element_ty
    angle = tl.minimum(tl.maximum(past, 0), cos_rows - 1)
    q0, q0_low, q1, q1_low, scale = query_parts(
        x0, x1, source, inside, angle, cos, sin, q_weight, q_epsilon, k_scale, head, scale,
        HEAD, HEAD_BLOCK, K0, K1, K_PAIRED, K_SCALED, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET, DTYPE,
    )  # fmt: skip
    offset_share = tl.zeros([BLOCK_M], tl.float32)
    if has_offset(K_PAIRED, DTYPE, ASSEMBLY):
        # K's codes keep their offset, and its product with Q is taken off: one subtraction a logit, not one a code.
        # V's do not, whose sums over many keys would lose their last bits.
        offset_share = tl.sum(q0.to(tl.float32), 1) + tl.sum(q1.to(tl.float32), 1)
        if K_SCALED == "channel":
            offset_share += tl.sum(q0_low.to(tl.float32), 1) + tl.sum(q1_low.to(tl.float32), 1)
        offset_share *= CODE_OFFSET
    q0 = tl.broadcast_to(tl.trans(q0)[None], [WARPS, K0, BLOCK_M])
    q0_low = tl.broadcast_to(tl.trans(q0_low)[None], [WARPS, K0, BLOCK_M])
    if K1 > 0:
        q1 = tl.broadcast_to(tl.trans(q1)[None], [WARPS, K1, BLOCK_M])
        q1_low = tl.broadcast_to(tl.trans(q1_low)[None], [WARPS, K1, BLOCK_M])

    if FUSED:
        if (keys > low) & (keys <= high):
            K_UNIT: tl.constexpr = 2 if K_PAIRED == 8 else 1
            V_UNIT: tl.constexpr = 2 if V_PAIRED == 8 else 1
            k_own, there = rows_in_pages(own_page, owner, own, num_blocks, k_block, k_row, block_shift, PAGED, WIDE)
            v_own, _ = rows_in_pages(own_page, owner, own, num_blocks, v_block, v_row, block_shift, PAGED, WIDE)
            append_side(k_new, k_odd, key + offset, head + one, (one == 0) & there, key_cache, k_own * K_UNIT,
                        k_head * K_UNIT, k_weight, k_epsilon, cos, sin, angle, k_scale, HEAD, HEAD_BLOCK, K_KIND,
                        K_SCALED, RECIPROCAL, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
            append_side(v_new, v_odd, value + offset, head + one, (one == 0) & there, value_cache, v_own * V_UNIT,
                        v_head * V_UNIT, k_weight, k_epsilon, cos, sin, angle, v_scale, HEAD, HEAD_BLOCK, V_KIND,
                        V_SCALED, RECIPROCAL, False, "none", 0, 0)  # fmt: skip
            tl.debug_barrier()

    position = past + token
    top = tl.full([WARPS, BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([WARPS, BLOCK_M], tl.float32)
    acc0 = tl.zeros([WARPS, V0, BLOCK_M], tl.float32)
    acc1 = acc0
    for first in range(low, high, BLOCK_N):
        if OVERLAPS:
            let_next_start(high - first <= keys_left)
        positions = first + places
        k_rows, seen = rows_in_pages(pages, owner, positions, num_blocks, k_block, k_row, block_shift, PAGED, WIDE)
        k_rows += head * k_head
        v_rows = k_rows
        if not ALIKE:
            v_rows, _ = rows_in_pages(pages, owner, positions, num_blocks, v_block, v_row, block_shift, PAGED, WIDE)
            v_rows += head * v_head
        # The pages of the next step are looked up a step ahead, so that copies need not wait for them.
        ahead = positions + BLOCK_N
        pages = pages_of(table, owner, ahead, ahead < high, columns, block_shift, PAGED)
        k0, k1 = load_parts(key_cache, k_rows, seen, HEAD, K0, K1, K_PAIRED, DTYPE, ASSEMBLY, True, True)
        logits = tl.dot(tl.trans(k0, 0, 2, 1), q0)
        if K_SCALED == "channel":
            logits = tl.dot(tl.trans(k0, 0, 2, 1), q0_low, logits)
        if K1 > 0:
            logits = tl.dot(tl.trans(k1, 0, 2, 1), q1, logits)
            if K_SCALED == "channel":
                logits = tl.dot(tl.trans(k1, 0, 2, 1), q1_low, logits)
        if SOFTCAP:
            logits -= offset_share[None, None, :]
            logits = softcap * (1.0 - 2.0 / (tl.exp2(logits * (scale * 2.0 * LOG2_E / softcap)) + 1.0)) * LOG2_E
        else:
            logits = logits * (scale * LOG2_E) - (offset_share * (scale * LOG2_E))[None, None, :]
        visible = seen[:, :, None] & inside[None, None, :]
        if CAUSAL and not FUSED:
            visible = visible & (positions[:, :, None] <= position[None, None, :])
        if WINDOWED and not FUSED:
            visible = visible & (positions[:, :, None] > position[None, None, :] - window)
        logits = tl.where(visible, logits, float("-inf"))
        highest = tl.maximum(top, tl.max(logits, 1))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        rescale = tl.exp2(top - safe)
        weights = tl.exp2(logits - safe[:, None, :])
        total = total * rescale + tl.sum(weights, 1)
        weights = weights.to(DTYPE)
        v0, v1 = load_parts(value_cache, v_rows, seen, VALUE_HEAD, V0, 0, V_PAIRED, DTYPE, ASSEMBLY, True, False)
        acc0 = tl.dot(v0, weights, acc0 * rescale[:, None, :])
        if V_PARTS == 2:
            acc1 = tl.dot(v1, weights, acc1 * rescale[:, None, :])
        top = highest

    top_of_all = tl.max(top, 0)
    safe = tl.where(top_of_all == float("-inf"), 0.0, top_of_all)
    share = tl.exp2(top - safe[None, :])
    total_of_all = tl.sum(total * share, 0)
    share *= value_scale
    sum0 = tl.trans(tl.sum(acc0 * share[:, None, :], 0))
    sum1 = sum0
    if V_PARTS == 2:
        sum1 = tl.trans(tl.sum(acc1 * share[:, None, :], 0))
    conclude(output, log_sum_exp, partials, statistics, counters, sum0, sum1, top_of_all, total_of_all,
             unit, split, splits, active, 0, head, owner, start, new, keys > 0, sinks, v_scale, o_batch, o_row, o_head,
             kv_heads, GROUP, HEAD, VALUE_HEAD, V0, V_PARTS, V_PAIRED, REST_SCALED, SINK, HAS_LOG_SUM_EXP,
             BLOCK_M, ROWS, MERGED)  # fmt: skip
