"""Rows of Q, K and V in the parts that tensor cores multiply, and codes as the halves that they stand for."""

from __future__ import annotations

import triton
import triton.language as tl

from pageloom.backends.cuda.kernels.rows import inverse_norm, prepared_rows, raw_rows

CODE_OFFSET = tl.constexpr(1152.0)


@triton.jit
def part_channels(index, PART: tl.constexpr, PAIRED: tl.constexpr, FIRST: tl.constexpr):
    """The channels of part 0 or 1: even and odd ones if PAIRED, else those before FIRST and the rest."""
    return 2 * index + PART if PAIRED > 0 else index + PART * FIRST


@triton.jit
def load_parts(
    cache, offsets, seen, limit: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr, PAIRED: tl.constexpr,
    DTYPE: tl.constexpr, ASSEMBLY: tl.constexpr, ACROSS: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """(part 0, part 1 or part 0 again), [..., N, C] numbers of DTYPE, exact: codes are not yet multiplied with their
    scale. What is not `seen` is 0.

    `offsets` and `seen` [..., N] are of the rows; ACROSS: [..., C, N]. PAIRED is 0, or the bits of codes whose even and
    odd channels are apart; 8-bit ones are loaded two at a time, since tensor cores' operands come out of shared memory
    in pieces of 16 bits. With OFFSET these may come with `CODE_OFFSET` added, as `has_offset` says.
    """
    index = tl.arange(0, FIRST)
    if ACROSS:
        index = index[:, None]
    rows = tl.expand_dims(offsets, -2 if ACROSS else -1)
    there = tl.expand_dims(seen, -2 if ACROSS else -1)
    # Compared without 2 * index, of which the compiler would not know that whole vectors are inside or not.
    mask = there & (index < ((limit + 1) // 2 if PAIRED > 0 else limit))
    if PAIRED == 4:
        packed = tl.load(cache + rows + index, mask=mask, other=0x88).to(tl.int32)
        first = ((packed & 15) - 8).to(tl.float32).to(DTYPE)
        rest = ((packed >> 4) - 8).to(tl.float32).to(DTYPE)
    elif PAIRED == 8:
        pairs = cache.to(tl.pointer_type(tl.int16), bitcast=True)
        packed = tl.load(pairs + rows + index, mask=mask, other=0)
        if ASSEMBLY and DTYPE == tl.float16:
            first, rest = offset_halves_of_pair(packed) if OFFSET else halves_of_pair(packed)
        else:
            first = ((packed << 8) >> 8).to(tl.float32).to(DTYPE)
            rest = (packed >> 8).to(tl.float32).to(DTYPE)
    else:
        first = tl.load(cache + rows + index, mask=mask, other=0.0).to(DTYPE)
        rest = first
        if REST > 0:
            last = FIRST + tl.arange(0, REST)
            if ACROSS:
                last = last[:, None]
            rest = tl.load(cache + rows + last, mask=there & (last < limit), other=0.0).to(DTYPE)
    return first, rest


@triton.constexpr_function
def has_offset(paired, dtype, assembly):
    """Whether `load_parts` with OFFSET gives codes with `CODE_OFFSET` added, not yet taken off again."""
    return assembly and paired == 8 and dtype == tl.float16


@triton.jit
def halves_of_pair(packed):
    """float16 of the low and of the high byte of int16, two at a time. The conversion instruction runs at a sixteenth
    of this rate."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 biased, offset;
        xor.b32 biased, $2, 0x80808080;
        mov.b32 offset, 0x64806480;
        prmt.b32 $0, biased, 0x64646464, 0x4240;
        prmt.b32 $1, biased, 0x64646464, 0x4341;
        sub.f16x2 $0, $0, offset;
        sub.f16x2 $1, $1, offset;
        }
        """,
        "=&r,=&r,r",
        [packed],
        dtype=(tl.float16, tl.float16),
        is_pure=True,
        pack=2,
    )


@triton.jit
def offset_halves_of_pair(packed):
    """`halves_of_pair` plus `CODE_OFFSET`: the byte code + 128 is the low byte of the half 1024 + code + 128."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 biased;
        xor.b32 biased, $2, 0x80808080;
        prmt.b32 $0, biased, 0x64646464, 0x4240;
        prmt.b32 $1, biased, 0x64646464, 0x4341;
        }
        """,
        "=&r,=&r,r",
        [packed],
        dtype=(tl.float16, tl.float16),
        is_pure=True,
        pack=2,
    )


@triton.jit
def raw_query(source, inside, HEAD: tl.constexpr, K0: tl.constexpr, K1: tl.constexpr, K_PAIRED: tl.constexpr):
    """`raw_rows` of Q in its parts: (part 0, part 1 or part 0 again)."""
    x0 = raw_rows(source, inside, part_channels(tl.arange(0, K0), 0, K_PAIRED, K0), HEAD)
    x1 = x0
    if K1 > 0:
        x1 = raw_rows(source, inside, part_channels(tl.arange(0, K1), 1, K_PAIRED, K0), HEAD)
    return x0, x1


@triton.jit
def query_parts(
    x0, x1, source, inside, angle, cos, sin, weight, epsilon, k_scale, head, scale, HEAD: tl.constexpr,
    HEAD_BLOCK: tl.constexpr, K0: tl.constexpr, K1: tl.constexpr, K_PAIRED: tl.constexpr, K_SCALED: tl.constexpr,
    NORM: tl.constexpr, ROTARY: tl.constexpr, ROTARY_DIM: tl.constexpr, ROTARY_OFFSET: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    """Q rows prepared, with K's scale in them: (part 0, its low bits, part 1, its low bits, the scale of the logits).

    `source` [R] points to the rows, which `raw_query` has loaded; without a part 1, or low bits, part 0 stands in
    their place.
    """
    unit = 1.0
    if K_SCALED == "channel":
        channels = tl.arange(0, HEAD_BLOCK)
        largest = tl.max(tl.load(k_scale + head * HEAD + channels, mask=channels < HEAD, other=0.0), 0)
        unit = tl.where(largest > 0.0, tl.exp2(tl.ceil(tl.log2(tl.where(largest > 0.0, largest, 1.0)))), 1.0)
        scale *= unit
    elif K_SCALED == "tensor":
        scale *= tl.load(k_scale)
    factor = tl.full(inside.shape, 1.0, tl.float32)
    if NORM:
        factor = inverse_norm(source, inside, epsilon, HEAD, HEAD_BLOCK)
    channels0 = part_channels(tl.arange(0, K0), 0, K_PAIRED, K0)
    prepared = prepared_rows(x0, source, inside, channels0, factor, weight, cos, sin, angle,
                             HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
    q0, q0_low = scaled_query(prepared, channels0, k_scale, head, unit, HEAD, K_SCALED, DTYPE)
    q1, q1_low = q0, q0_low
    if K1 > 0:
        channels1 = part_channels(tl.arange(0, K1), 1, K_PAIRED, K0)
        prepared = prepared_rows(x1, source, inside, channels1, factor, weight, cos, sin, angle,
                                 HEAD, NORM, ROTARY, ROTARY_DIM, ROTARY_OFFSET)  # fmt: skip
        q1, q1_low = scaled_query(prepared, channels1, k_scale, head, unit, HEAD, K_SCALED, DTYPE)
    return q0, q0_low, q1, q1_low, scale


@triton.jit
def scaled_query(values, channels, k_scale, head, unit, HEAD: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr):
    """(high, low) of float32 Q rows: their sum is Q, times the scale of each channel over `unit`, to twice DTYPE's
    bits."""
    if SCALED == "channel":
        factor = tl.load(k_scale + head * HEAD + channels, mask=channels < HEAD, other=0.0)
        values = values * (factor / unit)[None, :]
    high = values.to(DTYPE)
    return high, (values - high.to(tl.float32)).to(DTYPE)
