"""Quantised K and V: symmetric codes with a float32 scale, no zero point, round half to even. numpy.

A value is `code * scale`. Codes: int8 in [-128, 127]; int4 in [-8, 7], stored as code + 8, the even channel in the low
four bits of its byte and code 0 in the spare half of an odd head; float8e4m3fn saturates at +-448. All arithmetic is
float32, as the operators' contracts have it: PagedAttention divides by the scale; GroupQueryAttention multiplies with
its reciprocal. A scale of 0 quantises as a scale of 1.
"""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np

from pageloom.attention.cache_storage import CacheStorage, Element
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, Float64, to_float64

Rule = Literal["divide", "reciprocal"]

CODE_RANGE: dict[Element, tuple[int, int]] = {"int8": (-128, 127), "int4": (-8, 7), "float8e4m3fn": (-448, 448)}


def spread_scale(scale: Array, storage: CacheStorage, kv_num_heads: int, head_size: int) -> Array:
    """float32 `[kv_num_heads, head_size]`: the scale of every channel, whatever its granularity."""
    shape = (kv_num_heads, head_size)
    flat = np.asarray(scale, np.float32).reshape(-1)
    return np.broadcast_to(flat, shape) if storage.quant_type == "PER_TENSOR" else flat.reshape(shape)


def scaled(values: Array, scale: Array, rule: Rule) -> Array:
    """float32: `values` in units of `scale`, before they are rounded to codes."""
    unit = np.where(scale == 0, np.float32(1), scale).astype(np.float32)
    as_float32 = values.astype(np.float32)
    result: Array = as_float32 / unit if rule == "divide" else as_float32 * (np.float32(1) / unit)
    return result


def encode(values: Array, scale: Array, element: Element, rule: Rule) -> Array:
    """Codes of `values` `[..., kv_num_heads, head_size]` in the cache's own element type, packed for int4."""
    low, high = CODE_RANGE[element]
    units = scaled(values, scale, rule)
    if element == "float8e4m3fn":
        return np.clip(units, low, high).astype(ml_dtypes.float8_e4m3fn)
    codes = np.clip(np.rint(units), low, high).astype(np.int8)
    return pack_int4(codes) if element == "int4" else codes


def decode(codes: Array, scale: Array, element: Element, head_size: int) -> Float64:
    """float64 values of stored `codes` `[..., kv_num_heads, row_width]`."""
    unpacked = unpack_int4(codes, head_size) if element == "int4" else codes
    return to_float64(unpacked) * to_float64(scale)


def pack_int4(codes: Array) -> Array:
    """uint8 `[..., ceil(n / 2)]` of int8 codes `[..., n]` in [-8, 7]."""
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)])
    nibbles = (padded + 8).astype(np.uint8)
    packed: Array = nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)
    return packed


def unpack_int4(packed: Array, count: int) -> Array:
    """int8 codes `[..., count]` of `packed` `[..., ceil(count / 2)]`."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    return nibbles[..., :count].astype(np.int8) - np.int8(8)


def store(values: Float64, storage: CacheStorage, scale: Array | None, rule: Rule) -> Array:
    """`values` `[..., kv_num_heads, head_size]` as the cache holds them: rounded once to its type, or encoded.

    `scale` is `[kv_num_heads, head_size]` for a quantised cache and None for another.
    """
    if scale is None:
        with np.errstate(over="ignore"):
            return values.astype(NUMPY_DTYPES[storage.tensor_dtype])
    return encode(values, scale, storage.element, rule)


def load(stored: Array, storage: CacheStorage, scale: Array | None, head_size: int) -> Float64:
    """The float64 values of stored rows."""
    return to_float64(stored) if scale is None else decode(stored, scale, storage.element, head_size)
