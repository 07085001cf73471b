"""What the cases of all operators are filled with."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pageloom.attention.cache_storage import CacheStorage, Element
from pageloom.attention.kv_quantization import CODE_RANGE, Rule, encode, pack_int4, scaled
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, Bool, Float64
from pageloom.attention.tensors import DType

Poison = Literal["nan", "large"]

SPREAD = 3.3
"""Standard deviations that a quantised cache's codes span; what lies further out is clamped. No power of two times a
largest code, so that half-precision numbers do not fall on the boundary of two codes."""

TIE_MARGIN = 2e-4
"""How close to the boundary of two codes, in codes, float32 may still come to the other one."""


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, magnitude: float = 1.0) -> Array:
    """Normal numbers of standard deviation `magnitude`, rounded to `dtype`."""
    return (rng.standard_normal(shape) * magnitude).astype(NUMPY_DTYPES[dtype])


def rotary_caches(rows: int, half: int, dtype: DType) -> tuple[Array, Array]:
    """cos and sin `[rows, half]` of position * 10000 ** (-i / half)."""
    angles = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(NUMPY_DTYPES[dtype]), np.sin(angles).astype(NUMPY_DTYPES[dtype])


def poisoned(rng: np.random.Generator, shape: tuple[int, ...], element: Element, poison: Poison) -> Array:
    """A cache full of what must not be read: NaN, or numbers so large that one of them shows in any sum.

    Codes have no NaN of their own in int8 and int4: they get the extremes in either case.
    """
    if element in ("int8", "int4"):
        choices = np.array([-128, 127], np.int8) if element == "int8" else np.array([0x00, 0xFF], np.uint8)
        return rng.choice(choices, shape)
    large = {"float8e4m3fn": 448.0, "float16": 60000.0}.get(element, 1e30)
    dtype = NUMPY_DTYPES[CacheStorage(element, "NONE").tensor_dtype]
    if poison == "nan":
        return np.full(shape, np.nan).astype(dtype)
    return (rng.choice([-large, large], shape)).astype(dtype)


def cache_scale(rng: np.random.Generator, storage: CacheStorage, kv_num_heads: int, head_size: int) -> Array:
    """float32 scales, no two channels alike PER_CHANNEL, that let normal numbers fill the codes."""
    unit = SPREAD / CODE_RANGE[storage.element][1]
    if storage.quant_type == "PER_TENSOR":
        return np.array([unit], np.float32)
    return (unit * rng.uniform(0.7, 1.4, (kv_num_heads, 1, head_size))).astype(np.float32)


def code_is_uncertain(values: Array, scale: Array, element: Element, rule: Rule) -> Bool:
    """Which of `values` lie so close to the boundary of two codes that float32 arithmetic may come to either."""
    units = scaled(values, scale, rule).astype(np.float64)
    margin = TIE_MARGIN if element != "float8e4m3fn" else 1e-4 + 1e-5 * np.abs(units)
    one = np.float32(1)

    def codes(shifted: Float64) -> Array:
        as_float32 = shifted.astype(np.float32)
        if element == "int4":
            low, high = CODE_RANGE[element]
            return np.clip(np.rint(as_float32), low, high)
        return encode(as_float32, np.asarray(one), element, rule)

    uncertain: Bool = codes(units - margin) != codes(units + margin)
    return uncertain


def random_codes(rng: np.random.Generator, shape: tuple[int, ...], head_size: int, element: Element) -> Any:
    """Codes `[..., row_width]` of normal numbers, for K and V that were cached before."""
    units = rng.standard_normal((*shape, head_size)) * CODE_RANGE[element][1] / SPREAD
    low, high = CODE_RANGE[element]
    if element == "float8e4m3fn":
        return np.clip(units, low, high).astype(NUMPY_DTYPES["float8e4m3fn"])
    codes = np.clip(np.rint(units), low, high).astype(np.int8)
    return pack_int4(codes) if element == "int4" else codes
