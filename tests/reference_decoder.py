"""Runs a decoder description in numpy: what a Runner's results are compared with.

Plain attention over one sequence from its first token, no cache, no batch. Weights come dequantised from the `gguf`
package, so neither our reader's arithmetic nor a kernel is part of the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from pageloom.model.layer_ops import (
    Decoder,
    Embed,
    GatedLinear,
    LayerOp,
    Linear,
    Logits,
    PagedAttention,
    RmsNorm,
    Rope,
    SelectRows,
)

Array = npt.NDArray[np.floating]


class GgufWeights:
    """Tensors of a GGUF file by name, dequantised to `[rows, columns]` when asked for and then kept."""

    def __init__(self, path: Path, dtype: type[np.floating] = np.float32) -> None:
        self._tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
        self._dtype = dtype
        self._values: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._values:
            tensor = self._tensors[name]
            self._values[name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(self._dtype)
        return self._values[name]


class ReferenceDecoder:
    """`run` returns the logits of the wanted rows; `values` then holds the last value that each name had."""

    def __init__(
        self,
        decoder: Decoder,
        weights: GgufWeights | dict[str, Array],
        stored: Callable[[Array], Array] = lambda x: x,
    ) -> None:
        """`stored` is what a cache gives back of the K and V that it was given."""
        self._decoder = decoder
        self._stored = stored
        self._weights = weights
        self.values: dict[str, Array] = {}

    def run(self, input_ids: list[int], logits_rows: list[int] | None = None, num_ops: int | None = None) -> Array:
        """Logits `[len(logits_rows), vocab_size]`, by default of the last token. With `num_ops` only the first so many
        operations run, and the result is the output of the last of them."""
        rows = [len(input_ids) - 1] if logits_rows is None else logits_rows
        output = np.empty(0)
        for op in self._decoder.ops[:num_ops]:
            output = self._apply(op, input_ids, rows)
            if not isinstance(op, Logits):
                self.values[op.output] = output
        return output

    def greedy(self, input_ids: list[int], count: int) -> list[int]:
        """The `count` most likely next tokens, each computed from the whole sequence before it."""
        ids = list(input_ids)
        for _ in range(count):
            ids.append(int(self.run(ids)[0].argmax()))
        return ids[len(input_ids) :]

    def _apply(self, op: LayerOp, input_ids: list[int], rows: list[int]) -> Array:
        match op:
            case Embed():
                return self._weights[op.weight][input_ids] * op.scale
            case RmsNorm():
                normed = rms_norm(self.values[op.input], self._weights[op.weight], op.epsilon)
                return normed + self.values[op.residual] if op.residual else normed
            case Linear():
                return self._linear(op)
            case GatedLinear():
                x = self.values[op.input]
                gate = x @ self._weights[op.gate].T
                activated = silu(gate) if op.activation == "silu" else gelu_tanh(gate)
                return activated * (x @ self._weights[op.up].T)
            case PagedAttention():
                return self._attention(op)
            case SelectRows():
                return self.values[op.input][rows]
            case Logits():
                logits = self.values[op.input] @ self._weights[op.weight].T
                return op.softcap * np.tanh(logits / op.softcap) if op.softcap else logits

    def _linear(self, op: Linear) -> Array:
        x = self.values[op.input]
        parts = [x @ self._weights[weight].T for weight in op.weights]
        for index, bias in enumerate(op.biases):
            if bias is not None:
                parts[index] = parts[index] + self._weights[bias]
        output = np.concatenate(parts, axis=-1)
        return output + self.values[op.residual] if op.residual else output

    def _attention(self, op: PagedAttention) -> Array:
        tokens = len(self.values[op.qkv])
        heads = self.values[op.qkv].reshape(tokens, op.num_heads + 2 * op.kv_num_heads, op.head_size)
        query, key, value = np.split(heads, [op.num_heads, op.num_heads + op.kv_num_heads], axis=1)
        if op.q_norm:
            query = rms_norm(query, self._weights[op.q_norm], op.norm_epsilon)
        if op.k_norm:
            key = rms_norm(key, self._weights[op.k_norm], op.norm_epsilon)
        if op.rope:
            positions = np.arange(tokens)
            query, key = rotate(query, positions, op.rope), rotate(key, positions, op.rope)
        key, value = self._stored(key), self._stored(value)
        group = op.num_heads // op.kv_num_heads
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) * op.scale
        if op.softcap:
            scores = op.softcap * np.tanh(scores / op.softcap)
        age = np.arange(tokens)[:, None] - np.arange(tokens)[None, :]
        visible = age >= 0 if op.local_window_size == -1 else (age >= 0) & (age < op.local_window_size)
        scores = np.where(visible, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, value).reshape(tokens, -1)


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rotate(x: Array, positions: npt.NDArray[np.integer], rope: Rope) -> Array:
    """Turns the channel pairs of `x` `[tokens, heads, head_size]`."""
    angles = positions[:, None] * np.array(rope.inverse_frequencies)
    cos = (np.cos(angles) * rope.attention_factor).astype(x.dtype)[:, None, :]
    sin = (np.sin(angles) * rope.attention_factor).astype(x.dtype)[:, None, :]
    half = rope.dim // 2
    first, second = (
        (slice(0, rope.dim, 2), slice(1, rope.dim, 2))
        if rope.interleaved
        else (
            slice(0, half),
            slice(half, rope.dim),
        )
    )
    output = x.copy()
    output[..., first] = x[..., first] * cos - x[..., second] * sin
    output[..., second] = x[..., second] * cos + x[..., first] * sin
    return output
