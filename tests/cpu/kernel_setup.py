"""Builds a call of the compiled kernels and its oracle's view of the same data. What must not be read holds NaN."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tests.cpu.kernel_oracle import Array, Call, Row, decode, encode

Storage = Literal["f32", "f16", "int8", "int4"]
Layout = Literal["bnsh", "bsnh", "paged"]
E = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`counts[b]` query rows of sequence b, at the end of `totals[b]` keys (or from position `first` on)."""

    counts: tuple[int, ...] = (1,)
    totals: tuple[int, ...] = (37,)
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    v_head_size: int = 0
    key: Storage = "int8"
    value: Storage = "int8"
    per_channel: bool = False
    layout: Layout = "bnsh"
    block_size: int = 16
    flat: bool = False
    activations: Literal["f32", "f16"] = "f32"
    latent: bool = False
    unmapped: tuple[tuple[int, int], ...] = ()
    query_scale: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """`arguments` of `Attention`, `sequences` of `Sequences`; `output` and `log_sum_exp` are written by the call."""

    sequences: dict[str, Any]
    arguments: dict[str, Any]
    output: Array
    log_sum_exp: Array
    call: Call
    tokens: list[tuple[int, ...]]


def build(setup: Setup, rng: np.random.Generator) -> Built:
    batch = len(setup.counts)
    dv = setup.v_head_size or setup.head_size
    capacity = -(-(max(setup.totals) + 3) // setup.block_size) * setup.block_size
    written = np.arange(capacity) < np.array(setup.totals)[:, None]
    mapped = np.ones((batch, capacity), np.bool_)
    for b, column in setup.unmapped:
        mapped[b, column * setup.block_size : (column + 1) * setup.block_size] = False
    stored: dict[str, Array] = {}
    decoded: dict[str, Array] = {}
    scales: dict[str, Array | None] = {}
    for side, storage, channels in (("k", setup.key, setup.head_size), ("v", setup.value, dv)):
        shape = (batch, setup.kv_heads, capacity, channels)
        stored[side], scales[side], spread = _store(rng.uniform(-1, 1, shape), storage, setup, channels, rng)
        decoded[side] = decode(stored[side], spread, channels)
        if stored[side].dtype.kind == "f":
            stored[side][~np.broadcast_to((written & mapped)[:, None], shape[:3])] = np.nan
    if setup.latent:
        decoded["v"] = decoded["k"][..., :dv]
    arguments: dict[str, Any] = {"scale": setup.query_scale / np.sqrt(setup.head_size)}
    for side, name in (("k", "key_cache"), ("v", "value_cache")):
        if side == "v" and setup.latent:
            continue
        arguments[name], table = _laid_out(stored[side], setup, mapped, np.random.default_rng(5))
        if scales[side] is not None:
            arguments[f"{side}_scale"] = scales[side]
        if table is not None:
            arguments["block_table"] = table
    dtype = np.float32 if setup.activations == "f32" else np.float16
    offsets = np.concatenate([[0], np.cumsum(setup.counts)]).astype(np.int32)
    rows = max(setup.counts)
    shape = (int(offsets[-1]) if setup.flat else batch * rows, setup.heads)
    query = rng.normal(0, 1, (*shape, setup.head_size)).astype(dtype)
    output, lse = np.full((*shape, dv), np.nan, dtype), np.full(shape, np.nan, np.float32)
    sequences: dict[str, Any] = {"batch_size": batch, "total_lengths": np.array(setup.totals, np.int64)}
    lead = () if setup.flat else (batch, rows)
    if setup.flat:
        sequences |= {"rows": shape[0], "query_offsets": offsets}
    else:
        sequences |= {"rows": rows, "query_lengths": np.array(setup.counts, np.int32)}
    first = setup.options.get("first_position")
    call_rows = [
        Row(
            int(offsets[b]) + i if setup.flat else b * rows + i,
            b,
            i,
            (total - count if first is None else first) + i,
            total,
        )
        for b, (count, total) in enumerate(zip(setup.counts, setup.totals, strict=True))
        for i in range(count)
    ]
    if first is not None:
        sequences["first_position"] = first
    arguments |= {
        "query": query.reshape(*(lead or (shape[0],)), *query.shape[1:]),
        "output": output.reshape(*(lead or (shape[0],)), *output.shape[1:]),
        "log_sum_exp": lse.reshape(*(lead or (shape[0],)), setup.heads),
    }
    features = {k: v for k, v in setup.options.items() if k in ("softcap", "causal", "window", "sinks", "bias")}
    arguments |= features
    call = Call(
        rows=call_rows,
        query=query,
        keys=decoded["k"],
        values=decoded["v"],
        scale=float(np.float32(arguments["scale"])),
        mapped=mapped,
        **features,
    )
    return Built(sequences, arguments, output, lse, call, [(r.sequence, r.row) for r in call_rows])


def _store(
    values: npt.NDArray[np.float64], storage: Storage, setup: Setup, channels: int, rng: np.random.Generator
) -> tuple[Array, Array | None, Array | None]:
    """The stored array, the scale as the operator takes it, and the scale spread to [heads_kv, 1, channels]."""
    if storage in ("f32", "f16"):
        return values.astype(np.float32 if storage == "f32" else np.float16), None, None
    bits = 8 if storage == "int8" else 4
    top = 127 if bits == 8 else 7
    if setup.per_channel:
        scale = (rng.uniform(0.8, 1.2, (setup.kv_heads, 1, channels)) / top).astype(np.float32)
        return encode(values.astype(np.float32), scale, bits), scale, scale
    scale = np.array([1 / top], np.float32)
    return encode(values.astype(np.float32), scale, bits), scale, scale.reshape(1, 1, 1)


def _laid_out(
    stored: Array, setup: Setup, mapped: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Array, npt.NDArray[np.int32] | None]:
    batch, heads, capacity, width = stored.shape
    if setup.layout == "bnsh":
        return stored, None
    if setup.layout == "bsnh":
        return np.ascontiguousarray(stored.swapaxes(1, 2)).swapaxes(1, 2), None
    columns = capacity // setup.block_size
    blocks = batch * columns + 2
    cache = np.zeros((blocks, setup.block_size, heads, width), stored.dtype)
    if stored.dtype.kind == "f":
        cache[:] = np.nan
    table = rng.permutation(blocks)[: batch * columns].astype(np.int32).reshape(batch, columns)
    cache[table.reshape(-1)] = stored.swapaxes(1, 2).reshape(batch * columns, setup.block_size, heads, width)
    hidden = ~mapped[:, :: setup.block_size]
    table[hidden] = np.where(np.arange(hidden.sum()) % 2, -1, blocks)
    return cache, table


def tolerance(setup: Setup, mass: Array, logit_size: float) -> Array:
    """Bound of the error of a float32 result, from the lengths of its sums and the size of the logits; half an ulp of
    float16 more where the output is that."""
    longest = max(setup.totals)
    relative = 4 * (setup.head_size * E * (1 + logit_size)) + 2 * (np.sqrt(longest) + 16) * E
    return mass[..., None] * (relative + (2.0**-11 if setup.activations == "f16" else 0)) + (
        2.0**-24 if setup.activations == "f16" else 1e-30
    )
