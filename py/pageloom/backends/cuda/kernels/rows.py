"""What the kernels share: the lengths of a sequence, the rows of a cache, and Q, K and V as they enter attention."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait


@triton.jit
def await_predecessor(OVERLAPS: tl.constexpr):
    """Of a kernel that may start before the one before it ends (programmatic dependent launch): wait until that has
    ended and all that it has stored can be read. Nothing else orders the two.
    """
    if OVERLAPS:
        gdc_wait()


@triton.jit
def sequence_lengths(
    sequence,
    starts,
    lengths,
    query_lengths,
    num_tokens,
    rows,
    limit,
    fixed_past,
    LENGTHS: tl.constexpr,
):
    """(first row of the query, new rows, position of the first of them, keys), int32, of one sequence.

    LENGTHS says where they come from:

    - "paged": `starts` is a prefix sum int32[B + 1], `lengths` the cached tokens; a sequence that takes no part, since
      its past is negative or passes `limit`, has 0 keys.
    - "prompt", "append", "chunk": `lengths` int32[B] is one less than the keys, of at most `limit`; the past is 0, what
      `rows` leave, or what `query_lengths` int32[B] leave.
    - "external": `lengths` int64[B] counts the keys, and the last row sees all of them; the position may be negative.
    - "fixed": `limit` keys, `fixed_past` before the rows.
    """
    if LENGTHS == "paged":
        start = tl.load(starts + sequence)
        new = tl.load(starts + sequence + 1) - start
        past = tl.load(lengths + sequence)
        inside = (start >= 0) & (new >= 0) & (start <= num_tokens - new)
        new = tl.where(inside, new, 0)
        takes_part = (past >= 0) & (past <= limit - new)
        past = tl.where(takes_part, past, 0)
        keys = tl.where(takes_part, past + new, 0)
    elif LENGTHS == "external":
        start = 0
        new = rows
        keys = tl.minimum(tl.maximum(tl.load(lengths + sequence), 0), limit).to(tl.int32)
        past = keys - new
    elif LENGTHS == "fixed":
        start = 0
        new = rows
        keys = limit
        past = fixed_past
    else:
        start = 0
        new = rows
        keys = tl.minimum(tl.maximum(tl.load(lengths + sequence) + 1, 0), limit)
        if LENGTHS == "prompt":
            past = 0
        elif LENGTHS == "append":
            past = tl.maximum(keys - new, 0)
        else:
            past = keys - tl.minimum(tl.maximum(tl.load(query_lengths + sequence), 0), tl.minimum(new, keys))
    return start, new, past, keys


@triton.jit
def sequence_of_token(token, starts, batch, BATCH_BLOCK: tl.constexpr):
    """The sequence that `token` belongs to by the prefix sum `starts`; `batch` or more for none."""
    sequence = 0
    for first in range(0, batch, BATCH_BLOCK):
        index = first + tl.arange(0, BATCH_BLOCK)
        ends = tl.load(starts + 1 + index, mask=index < batch, other=2147483647)
        sequence += tl.sum((ends <= token).to(tl.int32), 0)
    return sequence


@triton.jit
def pages_of(table, sequence, positions, wanted, columns, block_shift, PAGED: tl.constexpr):
    """The page of each position by the block table, -1 of those that are not `wanted`; 0 if not PAGED."""
    if PAGED:
        row = table + sequence.to(tl.int64) * columns
        pages = tl.load(row + (positions >> block_shift), mask=wanted, other=-1)
    else:
        pages = tl.where(wanted, 0, -1)
    return pages


@triton.jit
def rows_in_pages(
    pages, sequence, positions, num_blocks, block_stride, row_stride, block_shift, PAGED: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """(offset of each position's row in a cache, whether it is there).

    Pages hold 2 ** `block_shift` positions and follow each other without gaps; one outside [0, num_blocks) is none. If
    not PAGED, a sequence's rows lie in one block, its own. Offsets are int32 unless WIDE.
    """
    seen = pages >= 0
    if PAGED:
        seen = seen & (pages < num_blocks)
        slots = positions & ((1 << block_shift) - 1)
        if WIDE:
            offsets = ((pages.to(tl.int64) << block_shift) + slots) * row_stride
        else:
            offsets = ((pages << block_shift) + slots) * row_stride
    elif WIDE:
        offsets = sequence.to(tl.int64) * block_stride + positions.to(tl.int64) * row_stride
    else:
        offsets = sequence * block_stride + positions * row_stride
    return offsets, seen


@triton.jit
def cache_rows(
    table, sequence, positions, wanted, columns, num_blocks, block_stride, row_stride, block_shift,
    PAGED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """`rows_in_pages` of the pages that the block table has."""
    pages = pages_of(table, sequence, positions, wanted, columns, block_shift, PAGED)
    return rows_in_pages(pages, sequence, positions, num_blocks, block_stride, row_stride, block_shift, PAGED, WIDE)


@triton.jit
def raw_rows(rows, inside, channels, HEAD: tl.constexpr):
    """float32 [R, C]: `channels` [C] of the rows that the pointers `rows` [R] begin."""
    mask = inside[:, None] & (channels < HEAD)[None, :]
    return tl.load(rows[:, None] + channels[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def inverse_norm(rows, inside, epsilon, HEAD: tl.constexpr, HEAD_BLOCK: tl.constexpr):
    """1 / sqrt(mean(x^2) + epsilon), float32 [R], of the rows that the pointers `rows` [R] begin."""
    x = raw_rows(rows, inside, tl.arange(0, HEAD_BLOCK), HEAD)
    return tl.rsqrt(tl.sum(x * x, 1) / HEAD + epsilon)


@triton.jit
def prepared_rows(
    x,
    rows,
    inside,
    channels,
    factor,
    weight,
    cos,
    sin,
    position,
    HEAD: tl.constexpr,
    NORM: tl.constexpr,
    ROTARY: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    ROTARY_OFFSET: tl.constexpr,
):
    """float32 [R, C]: `raw_rows` `x`, normed with `factor` [R] and `weight`, then rotated to `position`.

    Of rotation, channel and partner are (i, i + ROTARY_DIM / 2) if ROTARY is "half", (2i, 2i + 1) if "interleaved".
    """
    if NORM:
        gain = tl.load(weight + channels, mask=channels < HEAD, other=0.0).to(tl.float32)
        x = x * factor[:, None] * gain[None, :]
    if ROTARY != "none":
        HALF: tl.constexpr = ROTARY_DIM // 2
        place = channels - ROTARY_OFFSET
        rotated = (place >= 0) & (place < ROTARY_DIM)
        if ROTARY == "half":
            is_low = place < HALF
            pair = tl.where(is_low, place, place - HALF)
            partner = tl.where(is_low, channels + HALF, channels - HALF)
        else:
            is_low = place % 2 == 0
            pair = place // 2
            partner = tl.where(is_low, channels + 1, channels - 1)
        mask = inside[:, None] & (rotated & (channels < HEAD))[None, :]
        y = tl.load(rows[:, None] + partner[None, :], mask=mask, other=0.0).to(tl.float32)
        if NORM:
            gain = tl.load(weight + partner, mask=rotated & (channels < HEAD), other=0.0).to(tl.float32)
            y = y * factor[:, None] * gain[None, :]
        cosine = tl.load(cos + position * HALF + pair, mask=rotated, other=1.0).to(tl.float32)
        sine = tl.load(sin + position * HALF + pair, mask=rotated, other=0.0).to(tl.float32)
        sine = tl.where(is_low, -sine, sine)
        x = x * cosine[None, :] + y * sine[None, :]
    return x


@triton.jit
def store_row(
    cache, values, channels, inside, scale, head, HEAD: tl.constexpr, KIND: tl.constexpr, SCALED: tl.constexpr,
    RECIPROCAL: tl.constexpr,
):  # fmt: skip
    """Store float32 `values` [R, C] as KIND "float", "int8" or "float8" at `cache`, pointers [R] to the rows."""
    mask = inside[:, None] & (channels < HEAD)[None, :]
    if SCALED != "none":
        values = code_units(values, channels, inside, scale, head, HEAD, SCALED, RECIPROCAL)
        if KIND == "int8":
            values = rounded_code(values, -128.0, 127.0)
        else:
            values = tl.minimum(tl.maximum(values, -448.0), 448.0)
    tl.store(cache[:, None] + channels[None, :], values.to(cache.dtype.element_ty), mask=mask)


@triton.jit
def store_packed_row(
    cache, low, high, pairs, inside, scale, head, HEAD: tl.constexpr, SCALED: tl.constexpr, RECIPROCAL: tl.constexpr,
):  # fmt: skip
    """Store float32 `low` and `high` [R, C], channels 2 * `pairs` and the next, as two int4 codes a byte."""
    first = rounded_code(code_units(low, 2 * pairs, inside, scale, head, HEAD, SCALED, RECIPROCAL), -8.0, 7.0)
    second = code_units(high, 2 * pairs + 1, inside, scale, head, HEAD, SCALED, RECIPROCAL)
    second = rounded_code(second, -8.0, 7.0)
    code = (first.to(tl.int32) + 8) | ((second.to(tl.int32) + 8) << 4)
    mask = inside[:, None] & (2 * pairs < HEAD)[None, :]
    tl.store(cache[:, None] + pairs[None, :], code.to(tl.uint8), mask=mask)


@triton.jit
def code_units(
    values, channels, inside, scale, head, HEAD: tl.constexpr, SCALED: tl.constexpr, RECIPROCAL: tl.constexpr
):
    """`values` in units of their scale, float32; a scale of 0 counts as 1."""
    if SCALED == "channel":
        mask = inside[:, None] & (channels < HEAD)[None, :]
        unit = tl.load(scale + head[:, None] * HEAD + channels[None, :], mask=mask, other=1.0)
    else:
        unit = tl.full(values.shape, 0.0, tl.float32) + tl.load(scale)
    unit = tl.where(unit == 0.0, 1.0, unit)
    one = tl.full(values.shape, 1.0, tl.float32)
    return values * tl.div_rn(one, unit) if RECIPROCAL else tl.div_rn(values, unit)


@triton.jit
def rounded_code(units, low: tl.constexpr, high: tl.constexpr):
    """Rounded half to even and clamped: adding 1.5 * 2^23 leaves a float32 no fraction."""
    clamped = tl.minimum(tl.maximum(units, low), high)
    return (clamped + 12582912.0) - 12582912.0
