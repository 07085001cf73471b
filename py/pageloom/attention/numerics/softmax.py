"""The core that the three operators share: logits, softmax with an optional sink, and the weighted sum. float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pageloom.attention.numerics.dtypes import Array, Bool, Float64


@dataclass(frozen=True, slots=True)
class Attended:
    """Attention of R query rows over L keys, with any leading axes.

    - `products` `[..., R, L]`: scale * q.k;
    - `logits` `[..., R, L]`: after softcap and bias, before the mask;
    - `weights` `[..., R, L]`: softmax; rows that see no key are 0;
    - `output` `[..., R, Dv]`: weights @ values;
    - `log_sum_exp` `[..., R]`: natural logarithm of the denominator, the sink's share in it; -inf where it is 0;
    - `mass` `[..., R]`: the largest channel of weights @ |values|, what an error of the weights is multiplied with;
    - `logit_mass` `[..., R]`: the largest |scale| * (|q|.|k|) of the visible keys, the same for the products;
    - `product_mass` `[..., R]`: the same of all keys;
    - `logit_size` `[..., R]`: the largest magnitude of a visible logit.
    """

    products: Float64
    logits: Float64
    weights: Float64
    output: Float64
    log_sum_exp: Float64
    mass: Float64
    logit_mass: Float64
    product_mass: Float64
    logit_size: Float64


def attend(
    query: Float64,
    keys: Float64,
    values: Float64,
    visible: Bool,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: Float64 | None = None,
    sink: Float64 | None = None,
) -> Attended:
    """Attention of `query` `[..., R, D]` over `keys` `[..., L, D]` and `values` `[..., L, Dv]`.

    A logit is scale * q.k, then softcap * tanh(logit / softcap) where softcap > 0, then + `bias` `[..., R, L]`; keys
    that are not `visible` `[..., R, L]` are left out. `sink` `[..., R]` is one more logit of each row, without a value.
    A key that no row sees may hold anything, NaN included.
    """
    # A weight of 0 does not silence a NaN or an infinity, so what no row sees leaves the values altogether.
    values = np.where(np.any(visible, axis=-2, keepdims=True).swapaxes(-1, -2), values, 0.0)
    products = scale * (query @ keys.swapaxes(-1, -2))
    logits = softcap * np.tanh(products / softcap) if softcap > 0 else products
    if bias is not None:
        logits = logits + bias
    masked = np.where(visible, logits, -np.inf)
    top = masked.max(axis=-1, initial=-np.inf, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink[..., None])
    top = np.where(np.isneginf(top), 0.0, top)
    exponentials = np.exp(masked - top)
    denominator = exponentials.sum(axis=-1, keepdims=True)
    if sink is not None:
        denominator = denominator + np.exp(sink[..., None] - top)
    weights = np.divide(exponentials, denominator, out=np.zeros_like(exponentials), where=denominator != 0)
    with np.errstate(divide="ignore"):
        log_sum_exp = (np.log(denominator) + top)[..., 0]
    magnitudes = np.abs(scale) * (np.abs(query) @ np.abs(keys).swapaxes(-1, -2))
    return Attended(
        products=products,
        logits=logits,
        weights=weights,
        output=weights @ values,
        log_sum_exp=log_sum_exp,
        mass=(weights @ np.abs(values)).max(axis=-1, initial=0.0),
        logit_mass=np.where(visible, magnitudes, 0.0).max(axis=-1, initial=0.0),
        product_mass=magnitudes.max(axis=-1, initial=0.0),
        logit_size=np.abs(np.where(visible, logits, 0.0)).max(axis=-1, initial=0.0),
    )


def head_groups(kv_num_heads: int, array: Float64) -> Float64:
    """`[num_heads, ...]` as `[kv_num_heads, group, ...]`: query head h reads K/V head h // group."""
    return array.reshape(kv_num_heads, array.shape[0] // kv_num_heads, *array.shape[1:])


def refuse_nan(name: str, array: Array) -> None:
    """A reference that came to a NaN has read what it must not, or was given it: raises FloatingPointError."""
    if np.isnan(array).any():
        raise FloatingPointError(f"the reference's {name} holds NaN: a poisoned value was within reach")
