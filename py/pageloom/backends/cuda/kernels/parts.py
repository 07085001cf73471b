"""Rows of Q, K and V in the parts that tensor cores multiply, and codes as the halves that they stand for."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def part_channels(index, PART: tl.constexpr, PAIRED: tl.constexpr, FIRST: tl.constexpr):
    """The channels of part 0 or 1: even and odd ones if PAIRED, else those before FIRST and the rest."""
    return 2 * index + PART if PAIRED > 0 else index + PART * FIRST


@triton.jit
def load_part(
    cache, offsets, index, seen, limit: tl.constexpr, PART: tl.constexpr, PAIRED: tl.constexpr, FIRST: tl.constexpr,
    DTYPE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """[N, C] numbers of DTYPE, exact: codes are not yet multiplied with their scale. What is not `seen` is 0.

    PAIRED is 0, or the bits of codes whose even and odd channels are apart; 8-bit ones are loaded two at a time, since
    tensor cores' operands come out of shared memory in pieces of 16 bits.
    """
    if PAIRED > 0:
        mask = seen[:, None] & (2 * index < limit)[None, :]
    else:
        mask = seen[:, None] & ((index + PART * FIRST) < limit)[None, :]
    if PAIRED == 4:
        packed = tl.load(cache + offsets[:, None] + index[None, :], mask=mask, other=0x88).to(tl.int32)
        numbers = (((packed >> 4 * PART) & 15) - 8).to(tl.float32).to(DTYPE)
    elif PAIRED == 8:
        pairs = cache.to(tl.pointer_type(tl.int16), bitcast=True)
        packed = tl.load(pairs + offsets[:, None] + index[None, :], mask=mask, other=0)
        if ASSEMBLY and DTYPE == tl.float16:
            numbers = half_of_pair(packed, PART)
        else:
            code = (packed << 8) >> 8 if PART == 0 else packed >> 8
            numbers = code.to(tl.float32).to(DTYPE)
    else:
        codes = tl.load(cache + offsets[:, None] + (index + PART * FIRST)[None, :], mask=mask, other=0)
        if ASSEMBLY and codes.dtype == tl.int8 and DTYPE == tl.float16:
            numbers = half_of_int8(codes)
        else:
            numbers = codes.to(DTYPE)
    return numbers


@triton.jit
def half_of_pair(packed, PART: tl.constexpr):
    """float16 of the low (PART 0) or high byte of int16; see `half_of_int8`."""
    PICK: tl.constexpr = "0x4240" if PART == 0 else "0x4341"
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 biased, offset;
        xor.b32 biased, $1, 0x80808080;
        mov.b32 offset, 0x64806480;
        prmt.b32 $0, biased, 0x64646464, """
        + PICK
        + """;
        sub.f16x2 $0, $0, offset;
        }
        """,
        "=&r,r",
        [packed],
        dtype=tl.float16,
        is_pure=True,
        pack=2,
    )


@triton.jit
def half_of_int8(codes):
    """float16 of int8, four at a time: the byte code + 128 is the low byte of the half 1024 + code + 128.

    The conversion instruction runs at a sixteenth of this rate.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 biased, offset;
        xor.b32 biased, $2, 0x80808080;
        mov.b32 offset, 0x64806480;
        prmt.b32 $0, biased, 0x64646464, 0x4140;
        prmt.b32 $1, biased, 0x64646464, 0x4342;
        sub.f16x2 $0, $0, offset;
        sub.f16x2 $1, $1, offset;
        }
        """,
        "=&r,=&r,r",
        [codes],
        dtype=tl.float16,
        is_pure=True,
        pack=4,
    )


@triton.jit
def scaled_query(values, channels, k_scale, head, unit, HEAD: tl.constexpr, SCALED: tl.constexpr, DTYPE: tl.constexpr):
    """(high, low) of float32 Q rows: their sum is Q, times the scale of each channel over `unit`, to twice DTYPE's
    bits."""
    if SCALED == "channel":
        factor = tl.load(k_scale + head * HEAD + channels, mask=channels < HEAD, other=0.0)
        values = values * (factor / unit)[None, :]
    high = values.to(DTYPE)
    return high, (values - high.to(tl.float32)).to(DTYPE)
