"""The block formats of ggml and their meaning, in readable Python.

A tensor row is a whole number of blocks. `dequantize` is the reference that kernels are compared with, and what reads
small tensors; it is not made for whole models. Layouts: ggml `ggml-common.h`; arithmetic: `ggml-quants.c`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pageloom.errors import BadModelFile


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """`elements` consecutive weights of a row are stored in `bytes` bytes. `type_id` is ggml's number."""

    name: str
    type_id: int
    elements: int
    bytes: int


F32 = BlockFormat("F32", 0, 1, 4)
F16 = BlockFormat("F16", 1, 1, 2)
Q4_0 = BlockFormat("Q4_0", 2, 32, 18)
Q4_1 = BlockFormat("Q4_1", 3, 32, 20)
Q5_0 = BlockFormat("Q5_0", 6, 32, 22)
Q5_1 = BlockFormat("Q5_1", 7, 32, 24)
Q8_0 = BlockFormat("Q8_0", 8, 32, 34)
Q4_K = BlockFormat("Q4_K", 12, 256, 144)
Q5_K = BlockFormat("Q5_K", 13, 256, 176)
Q6_K = BlockFormat("Q6_K", 14, 256, 210)
BF16 = BlockFormat("BF16", 30, 1, 2)

FORMATS = {block.type_id: block for block in (F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16)}
"""Every format that the project reads, by ggml type number."""


def dequantize(block: BlockFormat, data: bytes) -> array[float]:
    """The float32 values of `data`. Raises `BadModelFile` where it is no whole number of blocks."""
    if len(data) % block.bytes:
        raise BadModelFile(f"{len(data)} bytes are no whole number of {block.name} blocks of {block.bytes} bytes")
    if block == F32:
        return _little_endian_floats(data)
    if block == F16:
        return array("f", struct.unpack(f"<{len(data) // 2}e", data))
    if block == BF16:  # the upper half of a float32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return _little_endian_floats(bytes(wide))
    read_block = _READERS[block.type_id]
    values = array("f")
    for start in range(0, len(data), block.bytes):
        values.extend(read_block(data[start : start + block.bytes]))
    return values


def _little_endian_floats(data: bytes) -> array[float]:
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _nibbles(data: bytes) -> Iterator[int]:
    """All low nibbles, then all high ones."""
    yield from (byte & 15 for byte in data)
    yield from (byte >> 4 for byte in data)


def _q4_0(data: bytes) -> Iterator[float]:
    (scale,) = struct.unpack_from("<e", data)
    return (scale * (q - 8) for q in _nibbles(data[2:]))


def _q4_1(data: bytes) -> Iterator[float]:
    scale, minimum = struct.unpack_from("<2e", data)
    return (scale * q + minimum for q in _nibbles(data[4:]))


def _q5_0(data: bytes) -> Iterator[float]:
    scale, fifth_bits = struct.unpack_from("<eI", data)
    return (scale * ((q | (fifth_bits >> i & 1) << 4) - 16) for i, q in enumerate(_nibbles(data[6:])))


def _q5_1(data: bytes) -> Iterator[float]:
    scale, minimum, fifth_bits = struct.unpack_from("<2eI", data)
    return (scale * (q | (fifth_bits >> i & 1) << 4) + minimum for i, q in enumerate(_nibbles(data[8:])))


def _q8_0(data: bytes) -> Iterator[float]:
    scale, *quants = struct.unpack("<e32b", data)
    return (scale * q for q in quants)


def _k_scales(packed: bytes) -> list[tuple[int, int]]:
    """The 6-bit (scale, minimum) of the 8 sub-blocks of a Q4_K or Q5_K block, from their 12 bytes.

    Bytes 0 to 3 hold scales 0 to 3, bytes 4 to 7 minimums 0 to 3, in their low 6 bits. Bytes 8 to 11 hold the low
    nibbles of scales and minimums 4 to 7, whose upper two bits are the top bits of bytes 0 to 7.
    """
    first = [(packed[j] & 63, packed[j + 4] & 63) for j in range(4)]
    second = [
        (packed[j + 8] & 15 | packed[j] >> 6 << 4, packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4) for j in range(4)
    ]
    return first + second


def _q4_k(data: bytes) -> Iterator[float]:
    scale, minimum = struct.unpack_from("<2e", data)
    for j, (sub_scale, sub_minimum) in enumerate(_k_scales(data[4:16])):
        quants = data[16 + j // 2 * 32 :][:32]
        for byte in quants:
            yield scale * sub_scale * (byte >> j % 2 * 4 & 15) - minimum * sub_minimum


def _q5_k(data: bytes) -> Iterator[float]:
    scale, minimum = struct.unpack_from("<2e", data)
    fifth_bits = data[16:48]
    for j, (sub_scale, sub_minimum) in enumerate(_k_scales(data[4:16])):
        quants = data[48 + j // 2 * 32 :][:32]
        for byte, fifth in zip(quants, fifth_bits, strict=True):
            q = byte >> j % 2 * 4 & 15 | (fifth >> j & 1) << 4
            yield scale * sub_scale * q - minimum * sub_minimum


def _q6_k(data: bytes) -> Iterator[float]:
    low, high = data[:128], data[128:192]
    *sub_scales, scale = struct.unpack_from("<16be", data, 192)
    for i in range(256):
        half, quarter, column = i // 128, i // 32 % 4, i % 32
        low_bits = low[half * 64 + quarter % 2 * 32 + column] >> quarter // 2 * 4 & 15
        high_bits = high[half * 32 + column] >> quarter * 2 & 3
        yield scale * sub_scales[i // 16] * ((low_bits | high_bits << 4) - 32)


_READERS: dict[int, Callable[[bytes], Iterator[float]]] = {
    Q4_0.type_id: _q4_0,
    Q4_1.type_id: _q4_1,
    Q5_0.type_id: _q5_0,
    Q5_1.type_id: _q5_1,
    Q8_0.type_id: _q8_0,
    Q4_K.type_id: _q4_k,
    Q5_K.type_id: _q5_k,
    Q6_K.type_id: _q6_k,
}
