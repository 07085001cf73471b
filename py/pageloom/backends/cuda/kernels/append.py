"""New tokens into the cache: split of packed Q, K and V, RMSNorm of Q and K, rotary embedding, quantisation, store."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.rows import (
    cache_rows,
    inverse_norm,
    prepared_rows,
    raw_rows,
    sequence_lengths,
    sequence_of_token,
    store_packed_row,
    store_row,
)


@triton.jit
def raw_side(source, inside, HEAD: tl.constexpr, HEAD_BLOCK: tl.constexpr, KIND: tl.constexpr):
    """`raw_rows` of one token's K or V as they are stored: (even channels, odd channels) for int4, else all, twice."""
    if KIND == "int4":
        pairs = tl.arange(0, HEAD_BLOCK // 2)
        x = raw_rows(source, inside, 2 * pairs, HEAD)
        odd = raw_rows(source, inside, 2 * pairs + 1, HEAD)
    else:
        x = raw_rows(source, inside, tl.arange(0, HEAD_BLOCK), HEAD)
        odd = x
    return x, odd


@triton.jit
def append_side(
    x, odd, source, heads, inside, cache, offset, head_stride, weight, epsilon, cos, sin, position, scale,
    HEAD: tl.constexpr, HEAD_BLOCK: tl.constexpr, KIND: tl.constexpr, SCALED: tl.constexpr, RECIPROCAL: tl.constexpr,
    NORM: tl.constexpr, ROTARY: tl.constexpr, ROTARY_DIM: tl.constexpr, ROTARY_OFFSET: tl.constexpr,
):  # fmt: skip
    """Prepare the rows of `heads` [R] of one token, which `source` [R] points to and `raw_side` has loaded, and store
    them in a cache."""
    factor = tl.full(heads.shape, 1.0, tl.float32)
    if NORM:
        factor = inverse_norm(source, inside, epsilon, HEAD, HEAD_BLOCK)
    target = cache + offset + heads.to(tl.int64) * head_stride
    if KIND == "int4":
        pairs = tl.arange(0, HEAD_BLOCK // 2)
        low = prepared_rows(x, source, inside, 2 * pairs, factor, weight, cos, sin, position,
                            HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        high = prepared_rows(odd, source, inside, 2 * pairs + 1, factor, weight, cos, sin, position,
                             HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        store_packed_row(target, low, high, pairs, inside, scale, heads, HEAD, SCALED, RECIPROCAL)
    else:
        channels = tl.arange(0, HEAD_BLOCK)
        values = prepared_rows(x, source, inside, channels, factor, weight, cos, sin, position,
                               HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        store_row(target, values, channels, inside, scale, heads, HEAD, KIND, SCALED, RECIPROCAL)


STATIC = [
    "num_tokens", "batch", "rows", "limit", "columns", "num_blocks", "cos_rows", "output_width", "num_heads",
    "kv_heads", "block_shift",
]  # fmt: skip
"""Integers that no program is compiled apart for."""


@triton.jit(do_not_specialize=STATIC)
def append_kernel(
    query, key, value, query_out, key_cache, value_cache, output, log_sum_exp,
    starts, lengths, query_lengths, table, slots, positions, cos, sin, q_weight, k_weight, k_scale, v_scale,
    num_tokens, batch, rows, limit, columns, num_blocks, cos_rows, output_width,
    query_stride, key_stride, k_block, k_row, k_head, v_block, v_row, v_head, q_epsilon, k_epsilon,
    num_heads, kv_heads, block_shift,
    HEAD: tl.constexpr, HEAD_BLOCK: tl.constexpr, HEADS_BLOCK: tl.constexpr, BATCH_BLOCK: tl.constexpr,
    PAGED: tl.constexpr, LENGTHS: tl.constexpr,
    K_KIND: tl.constexpr, V_KIND: tl.constexpr, K_SCALED: tl.constexpr, V_SCALED: tl.constexpr,
    RECIPROCAL: tl.constexpr, SIDES: tl.constexpr, HAS_SLOTS: tl.constexpr,
    HAS_POSITIONS: tl.constexpr, HAS_LOG_SUM_EXP: tl.constexpr, NORM: tl.constexpr, ROTARY: tl.constexpr,
    ROTARY_DIM: tl.constexpr, ROTARY_OFFSET: tl.constexpr,
):  # fmt: skip
    """One program: HEADS_BLOCK heads of K, of V (the first 0, 1 or 2 SIDES) or of Q of one token.

    Q goes to `query_out` [num_tokens, num_heads, HEAD] where norm or rotary change it. Tokens of no sequence store
    nothing, and their rows of the output become 0.
    """
    token = tl.program_id(0)
    section = tl.program_id(1)
    if LENGTHS == "paged":
        sequence = sequence_of_token(token, starts, batch, BATCH_BLOCK)
        if sequence >= batch:
            if section == 0:
                _clear(output, log_sum_exp, token, output_width, num_heads, HAS_LOG_SUM_EXP)
            return
    else:
        sequence = token // rows
    start, _, past, keys = sequence_lengths(
        sequence, starts, lengths, query_lengths, num_tokens, rows, limit, 0, LENGTHS
    )
    index = token - start if LENGTHS == "paged" else token - sequence * rows
    position = past + index
    angle = position
    if HAS_POSITIONS:
        angle = (tl.load(positions) + index if LENGTHS == "prompt" else tl.load(positions + token)).to(tl.int32)
    elif ROTARY != "none":
        angle = tl.minimum(position, cos_rows - 1)

    kv_sections = (kv_heads + HEADS_BLOCK - 1) // HEADS_BLOCK
    heads = tl.arange(0, HEADS_BLOCK)
    if section >= SIDES * kv_sections:
        heads += (section - SIDES * kv_sections) * HEADS_BLOCK
        source = query + token.to(tl.int64) * query_stride + heads * HEAD
        target = query_out + (token.to(tl.int64) * num_heads + heads) * HEAD
        factor = tl.full(heads.shape, 1.0, tl.float32)
        inside = heads < num_heads
        if NORM:
            factor = inverse_norm(source, inside, q_epsilon, HEAD, HEAD_BLOCK)
        channels = tl.arange(0, HEAD_BLOCK)
        x = raw_rows(source, inside, channels, HEAD)
        prepared = prepared_rows(x, source, inside, channels, factor, q_weight, cos, sin, angle,
                                 HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        store_row(target, prepared, channels, inside, k_scale, heads, HEAD, "float", "none", False)
        return

    if HAS_SLOTS:
        slot = tl.load(slots + token)
        stored = (slot >= 0) & ((slot >> block_shift) < num_blocks)
        block = slot >> block_shift
        place = slot & ((1 << block_shift) - 1)
        k_offset = block.to(tl.int64) * k_block + place.to(tl.int64) * k_row
        v_offset = block.to(tl.int64) * v_block + place.to(tl.int64) * v_row
    else:
        k_offset, stored = cache_rows(table, sequence, position, position < keys, columns, num_blocks, k_block, k_row,
                                      block_shift, PAGED, True)  # fmt: skip
        v_offset, _ = cache_rows(table, sequence, position, position < keys, columns, num_blocks, v_block, v_row,
                                 block_shift, PAGED, True)  # fmt: skip
    stored = stored & (position < keys)
    if SIDES == 0:
        return
    if section < kv_sections:
        heads += section * HEADS_BLOCK
        source = key + token.to(tl.int64) * key_stride + heads * HEAD
        inside = (heads < kv_heads) & stored
        new_key, odd_key = raw_side(source, inside, HEAD, HEAD_BLOCK, K_KIND)
        append_side(new_key, odd_key, source, heads, inside, key_cache, k_offset, k_head, k_weight, k_epsilon,
                    cos, sin, angle, k_scale, HEAD, HEAD_BLOCK, K_KIND, K_SCALED, RECIPROCAL,
                    NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
    elif SIDES == 2:
        heads += (section - kv_sections) * HEADS_BLOCK
        source = value + token.to(tl.int64) * key_stride + heads * HEAD
        inside = (heads < kv_heads) & stored
        new_value, odd_value = raw_side(source, inside, HEAD, HEAD_BLOCK, V_KIND)
        append_side(new_value, odd_value, source, heads, inside, value_cache, v_offset, v_head, k_weight, k_epsilon,
                    cos, sin, angle, v_scale, HEAD, HEAD_BLOCK, V_KIND, V_SCALED, RECIPROCAL,
                    False, "none", 0, 0)  # fmt: skip


@triton.jit
def _clear(output, log_sum_exp, token, width, num_heads, HAS_LOG_SUM_EXP: tl.constexpr):
    zero = tl.zeros([1024], output.dtype.element_ty)
    for first in range(0, width, 1024):
        channels = first + tl.arange(0, 1024)
        tl.store(output + token.to(tl.int64) * width + channels, zero, mask=channels < width)
    if HAS_LOG_SUM_EXP:
        for head in range(num_heads):
            tl.store(log_sum_exp + token * num_heads + head, float("-inf"))
