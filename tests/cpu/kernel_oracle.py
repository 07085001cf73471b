"""Attention, quantisation and rotary embedding in numpy float64, in the compiled kernels' own terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One query row: its place in the flat query, its sequence, its row in it, its position and the keys that exist."""

    token: int
    sequence: int
    row: int
    position: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`query` [tokens, N, D]; `keys`, `values` [B, heads_kv, capacity, D or Dv]: decoded; `mapped` [B, capacity]."""

    rows: list[Row]
    query: Array
    keys: Array
    values: Array
    scale: float
    softcap: float = 0.0
    causal: bool = True
    window: int = 0
    sinks: Array | None = None
    bias: Array | None = None
    mapped: Array | None = None
    hidden: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attended:
    """`output` [tokens, N, Dv], `log_sum_exp` [tokens, N]; `scaled`, `softcapped`, `masked`, `probabilities`
    [tokens, N, capacity], hidden ones -inf in the third and 0 in the last; `mass` [tokens, N]: sum of weights |V|."""

    output: Array
    log_sum_exp: Array
    scaled: Array
    softcapped: Array
    masked: Array
    probabilities: Array
    mass: Array


def attend(call: Call) -> Attended:
    tokens, heads, _ = call.query.shape
    kv_heads, capacity = call.keys.shape[1:3]
    result = Attended(
        output=np.zeros((tokens, heads, call.values.shape[-1])),
        log_sum_exp=np.full((tokens, heads), -np.inf),
        **{name: np.zeros((tokens, heads, capacity)) for name in ("scaled", "softcapped", "masked", "probabilities")},
        mass=np.zeros((tokens, heads)),
    )
    with np.errstate(invalid="ignore", over="ignore"):
        for row in call.rows:
            for head in range(heads):
                _attend_row(call, row, head, head // (heads // kv_heads), capacity, result)
    return result


def _attend_row(call: Call, row: Row, head: int, kv_head: int, capacity: int, result: Attended) -> None:
    key_positions = np.arange(capacity)
    visible = key_positions < row.total
    if call.causal:
        visible &= key_positions <= row.position
    if call.window:
        visible &= key_positions > row.position - call.window
    if call.mapped is not None:
        visible &= call.mapped[row.sequence]
    keys = call.keys[row.sequence, kv_head].astype(np.float64)
    logits = keys @ call.query[row.token, head].astype(np.float64) * call.scale
    result.scaled[row.token, head] = logits
    if call.softcap:
        logits = call.softcap * np.tanh(logits / call.softcap)
    result.softcapped[row.token, head] = logits
    if call.bias is not None:
        bias = np.full(capacity, -np.inf)
        given = np.broadcast_to(call.bias, _bias_shape(call, row, head))[row.sequence, head, row.row][:capacity]
        bias[: len(given)] = np.where(given, 0.0, -np.inf) if given.dtype == np.bool_ else given
        visible &= bias > -np.inf
        logits = np.where(visible, logits, 0.0) + np.where(visible, bias, 0.0)
    masked = np.where(visible, logits, -np.inf)
    result.masked[row.token, head] = masked
    sink = -np.inf if call.sinks is None else float(call.sinks[head])
    top = max(masked.max(initial=-np.inf), sink)
    if top == -np.inf:
        return
    weights = np.exp(masked - top)
    denominator = weights.sum() + np.exp(sink - top)
    weights /= denominator
    values = np.where(visible[:, None], call.values[row.sequence, kv_head].astype(np.float64), 0.0)
    result.output[row.token, head] = weights @ values
    result.mass[row.token, head] = (weights @ np.abs(values)).max(initial=0.0)
    result.log_sum_exp[row.token, head] = top + np.log(denominator)
    result.probabilities[row.token, head] = weights


def _bias_shape(call: Call, row: Row, head: int) -> tuple[int, ...]:
    assert call.bias is not None
    shape = call.bias.shape
    return (max(shape[0], row.sequence + 1), max(shape[1], head + 1), max(shape[2], row.row + 1), shape[3])


def encode(values: Array, scale: Array, bits: int, rule: str = "reciprocal") -> Array:
    """Codes of float32 `values` [..., D]; `scale` broadcasts. int4: two a byte, the even channel low, plus 8."""
    unit = np.where(scale == 0, np.float32(1), scale).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        x = values.astype(np.float32)
        scaled = x / unit if rule == "divide" else x * (np.float32(1) / unit)
    low, high = (-128, 127) if bits == 8 else (-8, 7)
    codes = np.where(np.isnan(scaled), high, np.clip(np.rint(scaled), low, high)).astype(np.int8)
    return codes if bits == 8 else pack_int4(codes)


def pack_int4(codes: Array) -> Array:
    padded = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)]) + 8
    return (padded[..., 0::2] | padded[..., 1::2] << 4).astype(np.uint8)


def decode(stored: Array, scale: Array | None, channels: int) -> Array:
    """float64 values of a stored array, `scale` broadcasting to them."""
    if stored.dtype == np.uint8:
        nibbles = np.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:-1], -1)[..., :channels]
        stored = nibbles.astype(np.int8) - np.int8(8)
    values = stored.astype(np.float64)
    return values if scale is None else values * scale.astype(np.float64)


def rotate(x: Array, position: int, cos: Array, sin: Array, *, interleaved: bool, offset: int = 0) -> Array:
    """`x` [heads, D] turned to `position`."""
    half = cos.shape[1]
    low, high = slice(offset, offset + half), slice(offset + half, offset + 2 * half)
    if interleaved:
        low, high = slice(offset, offset + 2 * half, 2), slice(offset + 1, offset + 2 * half, 2)
    c, s = cos[position].astype(np.float64), sin[position].astype(np.float64)
    turned = x.astype(np.float64)
    turned[:, low] = x[:, low] * c - x[:, high] * s
    turned[:, high] = x[:, high] * c + x[:, low] * s
    return turned


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight.astype(np.float64)
