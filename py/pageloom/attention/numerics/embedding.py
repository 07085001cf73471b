"""What happens to Q and new K before attention: RMSNorm of each head, then rotary embedding. float64."""

from __future__ import annotations

import numpy as np

from pageloom.attention.numerics.dtypes import Array, Float64, to_float64


def rms_norm(x: Float64, weight: Array, epsilon: float) -> Float64:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    normed: Float64 = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * to_float64(weight)
    return normed


def rotate(
    x: Float64, positions: Array, cos_cache: Array, sin_cache: Array, *, interleaved: bool, offset: int = 0
) -> Float64:
    """Rotary embedding of `x` `[..., tokens, heads, head_size]` at `positions` `[..., tokens]`.

    Caches are `[rows, half]`; pair i is turned by column i. Pairs are channels (2i, 2i + 1) if `interleaved`, else
    (i, i + half), counted from `offset`; channels outside [offset, offset + 2 * half) pass through.
    """
    half = cos_cache.shape[1]
    cos = to_float64(cos_cache)[positions][..., None, :]
    sin = to_float64(sin_cache)[positions][..., None, :]
    low, high = slice(offset, offset + half), slice(offset + half, offset + 2 * half)
    if interleaved:
        low, high = slice(offset, offset + 2 * half, 2), slice(offset + 1, offset + 2 * half, 2)
    rotated = x.copy()
    rotated[..., low] = x[..., low] * cos - x[..., high] * sin
    rotated[..., high] = x[..., high] * cos + x[..., low] * sin
    return rotated
