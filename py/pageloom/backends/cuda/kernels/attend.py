"""Attention over a cache in place, paged or not: online softmax, keys split over programs, their parts merged.

A program takes a tile of query rows of one sequence and one K/V head. The rows of a tile are (token, query head of the
group), so K and V are loaded once for the whole group. Channels go in one or two parts, each a power of two: the even
and the odd channels of packed int4 codes, or a wide head's first 512 and the rest.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.append import append_side
from pageloom.backends.cuda.kernels.finish import LOG2_E, finish, merge
from pageloom.backends.cuda.kernels.parts import load_part, part_channels, scaled_query
from pageloom.backends.cuda.kernels.rows import (
    cache_rows,
    inverse_norm,
    prepared_rows,
    sequence_lengths,
    sequence_of_token,
)

MERGED_AT_ONCE = tl.constexpr(8192)


STATIC = [
    "num_tokens", "batch", "rows", "limit", "fixed_past", "columns", "num_blocks", "cos_rows", "tiles", "kv_heads",
    "window", "block_shift",
]  # fmt: skip
"""Integers that no program is compiled apart for."""


@triton.jit(do_not_specialize=STATIC)
def attend_kernel(
    query, key, value, key_cache, value_cache, output, log_sum_exp, partials, statistics, counters, flags,
    starts, lengths, query_lengths, table, cos, sin, q_weight, k_weight, k_scale, v_scale, sinks,
    num_tokens, batch, rows, limit, fixed_past, columns, num_blocks, cos_rows, tiles,
    q_batch, q_row, q_head, o_batch, o_row, o_head, kv_row, k_block, k_row, k_head, v_block, v_row, v_head,
    scale, softcap, q_epsilon, k_epsilon, kv_heads, window, block_shift,
    GROUP: tl.constexpr, HEAD: tl.constexpr, VALUE_HEAD: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K_PAIRED: tl.constexpr, V0: tl.constexpr, V_PARTS: tl.constexpr,
    V_PAIRED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,
    PAGED: tl.constexpr, BATCH_BLOCK: tl.constexpr, HEAD_BLOCK: tl.constexpr, LENGTHS: tl.constexpr,
    FUSED: tl.constexpr, UNIFORM: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, SOFTCAP: tl.constexpr,
    SINK: tl.constexpr, K_KIND: tl.constexpr, V_KIND: tl.constexpr, K_SCALED: tl.constexpr, V_SCALED: tl.constexpr,
    RECIPROCAL: tl.constexpr, NORM: tl.constexpr, ROTARY: tl.constexpr, ROTARY_DIM: tl.constexpr,
    ROTARY_OFFSET: tl.constexpr, HAS_LOG_SUM_EXP: tl.constexpr, ONLY_FLAGGED: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """FUSED: each sequence has at most one new token, whose Q is prepared, and whose K and V are stored, here.

    ONLY_FLAGGED: a library has computed `rows` of every sequence, one after another. Sequences whose flag is not 0 are
    computed anew, and tokens that belong to none are set to 0.

    The grid is K/V heads (fastest), splits, tiles, sequences (tokens if FUSED over pages). Splits of a tile leave their
    parts in `partials` and `statistics`; the last of them to come, by `counters`, merges all.
    """
    program = tl.program_id(0)
    head = program % kv_heads
    program = program // kv_heads
    split = program % SPLITS
    program = program // SPLITS
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

    V_UNIT: tl.constexpr = 2 if V_PAIRED == 8 else 1
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
        sequence = owner
    valid = keys > 0

    row = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    token = row // GROUP
    inside = token < new
    first_token = tile * BLOCK_M // GROUP
    last_token = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, new - 1)
    if first_token >= new:
        return
    begin = 0
    end = keys
    if CAUSAL:
        end = tl.minimum(end, past + last_token + 1)
    if WINDOWED:
        begin = tl.maximum(past + first_token + 1 - window, 0)
    first_block = begin // BLOCK_N
    blocks = tl.maximum(tl.cdiv(end, BLOCK_N) - first_block, 0)
    blocks_each = tl.maximum(tl.cdiv(blocks, SPLITS), 1)
    active = tl.maximum(tl.cdiv(blocks, blocks_each), 1)
    if split >= active:
        return
    low = (first_block + split * blocks_each) * BLOCK_N
    high = tl.minimum(low + blocks_each * BLOCK_N, end)

    DTYPE: tl.constexpr = output.dtype.element_ty
    position = past + token
    query_head = head * GROUP + row % GROUP
    k_index = tl.arange(0, K0)
    k_channels = part_channels(k_index, 0, K_PAIRED, K0)
    v_index = tl.arange(0, V0)
    source = query + owner.to(tl.int64) * q_batch + (start + token).to(tl.int64) * q_row
    source += query_head.to(tl.int64) * q_head
    angle = tl.minimum(tl.maximum(past, 0), cos_rows - 1)
    unit_scale = 1.0
    if K_SCALED == "channel":
        channels = tl.arange(0, HEAD_BLOCK)
        largest = tl.max(tl.load(k_scale + head * HEAD + channels, mask=channels < HEAD, other=0.0), 0)
        unit_scale = tl.where(largest > 0.0, tl.exp2(tl.ceil(tl.log2(tl.where(largest > 0.0, largest, 1.0)))), 1.0)
        scale *= unit_scale
    elif K_SCALED == "tensor":
        scale *= tl.load(k_scale)
    factor = tl.full([BLOCK_M], 1.0, tl.float32)
    if NORM:
        factor = inverse_norm(source, inside, q_epsilon, HEAD, HEAD_BLOCK)
    prepared = prepared_rows(source, inside, k_channels, factor, q_weight, cos, sin, angle,
                             HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
    q0, q0_low = scaled_query(prepared, k_channels, k_scale, head, unit_scale, HEAD, K_SCALED, DTYPE)
    if K1 > 0:
        k_rest = tl.arange(0, K1)
        rest_channels = part_channels(k_rest, 1, K_PAIRED, K0)
        prepared = prepared_rows(source, inside, rest_channels, factor, q_weight, cos, sin, angle,
                                 HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        q1, q1_low = scaled_query(prepared, rest_channels, k_scale, head, unit_scale, HEAD, K_SCALED, DTYPE)

    if FUSED:
        if (keys > low) & (keys <= high):
            one = tl.arange(0, 1)
            own = keys - 1
            k_own, k_there = cache_rows(
                table, sequence, own, own >= 0, columns, num_blocks, k_block, k_row, block_shift, PAGED
            )
            v_own, _ = cache_rows(
                table, sequence, own, own >= 0, columns, num_blocks, v_block, v_row, block_shift, PAGED
            )
            offset = start.to(tl.int64) if LENGTHS == "paged" else owner.to(tl.int64)
            offset = offset * kv_row + (head + one) * HEAD
            append_side(key + offset, head + one, (one == 0) & k_there, key_cache, k_own, k_head, k_weight, k_epsilon,
                        cos, sin, angle, k_scale, HEAD, HEAD_BLOCK, K_KIND, K_SCALED, RECIPROCAL,
                        NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
            append_side(value + offset, head + one, (one == 0) & k_there, value_cache, v_own * V_UNIT,
                        v_head * V_UNIT, k_weight,
                        k_epsilon, cos, sin, angle, v_scale, HEAD, HEAD_BLOCK, V_KIND, V_SCALED, RECIPROCAL,
                        False, "none", 0, 0)  # fmt: skip
            tl.debug_barrier()

    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc0 = tl.zeros([BLOCK_M, V0], tl.float32)
    acc1 = tl.zeros([BLOCK_M, V0], tl.float32)
    for first in range(low, high, BLOCK_N):
        positions = first + tl.arange(0, BLOCK_N)
        wanted = (positions >= begin) & (positions < high)
        k_rows, seen = cache_rows(
            table, owner, positions, wanted, columns, num_blocks, k_block, k_row, block_shift, PAGED
        )
        v_rows, _ = cache_rows(table, owner, positions, wanted, columns, num_blocks, v_block, v_row, block_shift, PAGED)
        k_rows += head * k_head
        v_rows += head * v_head
        k0 = load_part(key_cache, k_rows, k_index, seen, HEAD, 0, K_PAIRED, K0, DTYPE, ASSEMBLY)
        logits = tl.dot(q0, tl.trans(k0))
        if K_SCALED == "channel":
            logits = tl.dot(q0_low, tl.trans(k0), logits)
        if K1 > 0:
            k1 = load_part(key_cache, k_rows, k_rest, seen, HEAD, 1, K_PAIRED, K0, DTYPE, ASSEMBLY)
            logits = tl.dot(q1, tl.trans(k1), logits)
            if K_SCALED == "channel":
                logits = tl.dot(q1_low, tl.trans(k1), logits)
        logits = logits * scale
        if SOFTCAP:
            logits = softcap * (1.0 - 2.0 / (tl.exp2(logits * (2.0 * LOG2_E / softcap)) + 1.0))
        logits = logits * LOG2_E
        visible = seen[None, :] & inside[:, None]
        if CAUSAL and not FUSED:
            visible = visible & (positions[None, :] <= position[:, None])
        if WINDOWED and not FUSED:
            visible = visible & (positions[None, :] > position[:, None] - window)
        logits = tl.where(visible, logits, float("-inf"))
        highest = tl.maximum(top, tl.max(logits, 1))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        rescale = tl.exp2(top - safe)
        weights = tl.exp2(logits - safe[:, None])
        total = total * rescale + tl.sum(weights, 1)
        weights = weights.to(DTYPE)
        v0 = load_part(value_cache, v_rows, v_index, seen, VALUE_HEAD, 0, V_PAIRED, V0, DTYPE, ASSEMBLY)
        acc0 = tl.dot(weights, v0, acc0 * rescale[:, None])
        if V_PARTS == 2:
            v1 = load_part(value_cache, v_rows, v_index, seen, VALUE_HEAD, 1, V_PAIRED, V0, DTYPE, ASSEMBLY)
            acc1 = tl.dot(weights, v1, acc1 * rescale[:, None])
        top = highest

    if SPLITS == 1 or active == 1:
        finish(output, log_sum_exp, acc0, acc1, top, total, token, query_head, inside, sinks, v_scale, head, owner,
               start, valid, o_batch, o_row, o_head, kv_heads * GROUP, HEAD, VALUE_HEAD, V0, V_PARTS, V_PAIRED,
               V_SCALED, SINK, HAS_LOG_SUM_EXP)  # fmt: skip
    else:
        place = tl.arange(0, BLOCK_M)
        part = partials + unit.to(tl.int64) * (SPLITS * V_PARTS * ROWS * V0)
        statistic = statistics + unit.to(tl.int64) * (SPLITS * 2 * ROWS)
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
            CHUNK: tl.constexpr = MERGED_AT_ONCE // (ROWS * V0) if ROWS * V0 < MERGED_AT_ONCE else 1
            STEP: tl.constexpr = CHUNK if CHUNK < SPLITS else SPLITS
            merged0, all_top, all_total = merge(part, statistic, active, ROWS, V0, V_PARTS, 0, STEP)
            merged1 = merged0
            if V_PARTS == 2:
                merged1, all_top, all_total = merge(part, statistic, active, ROWS, V0, V_PARTS, 1, STEP)
            kept = tile * BLOCK_M + tl.arange(0, ROWS)
            kept_token = kept // GROUP
            finish(output, log_sum_exp, merged0, merged1, all_top, all_total, kept_token, head * GROUP + kept % GROUP,
                   kept_token < new, sinks, v_scale, head, owner, start, valid, o_batch, o_row, o_head,
                   kv_heads * GROUP, HEAD, VALUE_HEAD, V0, V_PARTS, V_PAIRED,
                   V_SCALED, SINK, HAS_LOG_SUM_EXP)  # fmt: skip
