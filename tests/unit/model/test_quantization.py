"""Block formats against blocks computed by hand and against the `gguf` package."""

from __future__ import annotations

import struct

import gguf
import numpy as np
import pytest

from pageloom.errors import BadModelFile
from pageloom.model.quantization import FORMATS, BlockFormat, dequantize

BY_NAME = {block.name: block for block in FORMATS.values()}
SCALES = np.array([0.0, -0.0, 1.0, -2.5, 6e-8, -6e-8, 65504.0, 1e-4], np.float16)
"""Zero, negative, the smallest subnormal and the largest half among them."""
SCALE_OFFSETS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def halves(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}e", *values)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


ONE_THEN_ZEROS = bytes([1]) + bytes(15)
FIRST, SIXTH = range(32), range(160, 192)
K_SCALES = halves(1, 1) + bytes([2, 1 << 6, 0, 0, 3, 2 << 6, 0, 0, 0, 0x21, 0, 0])
"""First sub-block: scale 2, minimum 3. Sixth (bytes 1, 5 and 9): scale 1 | 1 << 4, minimum 2 | 2 << 4. Others: 0."""
Q4_K_QUANTS = bytes([0x05] * 32) + bytes(32) + bytes([0x10] * 32) + bytes(32)
Q5_K_FIFTH_BITS = bytes([1, 1 << 5]) + bytes(30)
"""Of element 0 of the first sub-block and element 1 of the sixth."""
Q6_K_BLOCK = (
    bytes([1]) + bytes(126) + bytes([0xF0]) + bytes(63) + bytes([0xC0])  # element 0 is 1, element 255 is 63
    + struct.pack("<16b", -1, *[0] * 14, 2) + halves(1)
)  # fmt: skip

BY_HAND: dict[str, tuple[str, bytes, dict[int, float], float]] = {
    # format, block, values at some places, value everywhere else
    "Q4_0 centres nibbles at 8": ("Q4_0", halves(2) + bytes([0xF1]) + bytes([0x88] * 15), {0: -14, 16: 14}, 0),
    "Q4_1 adds its minimum": ("Q4_1", halves(0.5, -3) + bytes([0xF1]) + bytes(15), {0: -2.5, 16: 4.5}, -3),
    "Q5_0 has a fifth bit": ("Q5_0", halves(1) + u32(1 | 1 << 31) + ONE_THEN_ZEROS, {0: 1, 31: 0}, -16),
    "Q5_1 has both": ("Q5_1", halves(1, 10) + u32(1 << 16) + ONE_THEN_ZEROS, {0: 11, 16: 26}, 10),
    "Q8_0 is signed": ("Q8_0", halves(0.25) + struct.pack("<32b", -128, 127, *[0] * 30), {0: -32, 1: 31.75}, 0),
    "Q4_K packs 6-bit scales": (
        "Q4_K",
        K_SCALES + Q4_K_QUANTS,
        dict.fromkeys(FIRST, 2 * 5 - 3) | dict.fromkeys(SIXTH, 17 * 1 - 34),
        0,
    ),
    "Q5_K adds a fifth bit": (
        "Q5_K",
        K_SCALES + Q5_K_FIFTH_BITS + bytes(128),
        dict.fromkeys(FIRST, -3) | dict.fromkeys(SIXTH, -34) | {0: 2 * 16 - 3, 161: 17 * 16 - 34},
        0,
    ),
    "Q6_K centres at 32 with signed scales": (
        "Q6_K",
        Q6_K_BLOCK,
        dict.fromkeys(range(16), 32) | dict.fromkeys(range(240, 256), -64) | {0: 31, 255: 62},
        0,
    ),
    "F32 is itself": ("F32", struct.pack("<2f", 1.5, -0.25), {0: 1.5, 1: -0.25}, 0),
    "F16 widens": ("F16", halves(1.5, -0.25), {0: 1.5, 1: -0.25}, 0),
    "BF16 is the upper half of a float": ("BF16", bytes([0xC0, 0x3F, 0x80, 0xBE]), {0: 1.5, 1: -0.25}, 0),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_equals_a_block_computed_by_hand(case: str) -> None:
    name, data, some, others = BY_HAND[case]
    values = dequantize(BY_NAME[name], data)
    assert len(values) == len(data) // BY_NAME[name].bytes * BY_NAME[name].elements
    assert list(values) == [some.get(place, others) for place in range(len(values))]


@pytest.mark.parametrize("block", FORMATS.values(), ids=lambda block: block.name)
def test_sizes_are_those_of_the_gguf_package(block: BlockFormat) -> None:
    assert (block.elements, block.bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[block.name]]
    assert block.type_id == gguf.GGMLQuantizationType[block.name]


@pytest.mark.parametrize("block", FORMATS.values(), ids=lambda block: block.name)
def test_equals_the_gguf_package_bit_for_bit(block: BlockFormat) -> None:
    rng = np.random.default_rng(block.type_id)
    blocks = rng.integers(0, 256, (64, block.bytes), dtype=np.uint8)
    for place in SCALE_OFFSETS.get(block.name, []):
        blocks[:, place : place + 2] = rng.choice(SCALES, 64).view(np.uint8).reshape(64, 2)
    if block.name in {"F32", "F16", "BF16"}:  # bytes at random may be NaN
        floats = rng.standard_normal((64, 1), np.float32) * 100
        kind = gguf.GGMLQuantizationType[block.name]
        blocks = gguf.quants.quantize(floats, kind).view(np.uint8).reshape(64, block.bytes)
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[block.name])
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(np.array(dequantize(block, blocks.tobytes())), expected.reshape(-1))


def test_refuses_a_part_of_a_block() -> None:
    with pytest.raises(BadModelFile, match="35 bytes are no whole number of Q8_0 blocks of 34"):
        dequantize(BY_NAME["Q8_0"], bytes(35))
