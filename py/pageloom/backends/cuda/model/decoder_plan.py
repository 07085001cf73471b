"""A decoder's layer operations as kernels and matrix products over tensors, in buckets of steps.

The stream of activations that norms and sums read is float32; what a product or attention reads is float16, and every
product is summed in float32. A sum with a residual is left to the norm that reads it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cuda.geometry import power_of_two
from pageloom.backends.cuda.model import kernels
from pageloom.backends.cuda.model.candidates import find_best, find_candidates
from pageloom.backends.cuda.model.step_buffers import StepBuffers
from pageloom.backends.cuda.model.weights import DecoderWeights, matrix_names
from pageloom.backends.cuda.operators import CudaOperators
from pageloom.backends.cuda.tiers import Tier
from pageloom.engine.batch import RunnerLimits
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

GATE_BLOCK = 1024
SPLIT_KEYS: Tier = "fused"
"""Of steps with at most one new token a sequence; appends too."""
TILES: Tier = "triton"
"""Of all others."""


@dataclass(frozen=True, slots=True)
class BodyBucket:
    """A step of at most so many tokens and sequences; `decodes_only` where token i is the one of sequence i."""

    tokens: int
    sequences: int
    decodes_only: bool


@dataclass(frozen=True, slots=True)
class HeadBucket:
    """At most so many rows; `greedy` where the best token is enough, of logits that nothing changes."""

    rows: int
    greedy: bool


@dataclass(frozen=True, slots=True)
class Sum:
    """A value that nobody has added up yet."""

    residual: torch.Tensor
    delta: torch.Tensor


class DecoderPlan:
    """Owns the cache and the step's tensors of one decoder. `body` and `head` queue the two parts of a step."""

    def __init__(
        self, operators: CudaOperators, decoder: Decoder, weights: DecoderWeights, limits: RunnerLimits
    ) -> None:
        self.operators = operators
        self.limits = limits
        self.weights = weights
        device = operators.device
        self.step = StepBuffers(limits, device)
        shape = (limits.num_blocks, limits.block_size, decoder.kv_num_heads, decoder.head_size)
        self.caches = [
            tuple(torch.zeros(shape, dtype=torch.float16, device=device) for _ in range(2))
            for _ in range(decoder.num_layers)
        ]
        self._summed = {name for op in decoder.ops for name in _summed(op)}
        split, select = next((index, op) for index, op in enumerate(decoder.ops) if isinstance(op, SelectRows))
        self._body, self._head = decoder.ops[: split + 1], decoder.ops[split + 1 :]
        self._selected = select.output
        self._rows = torch.zeros((limits.max_sequences, decoder.widths[self._selected]), device=device)
        self._positions = limits.max_blocks_per_sequence * limits.block_size
        attentions = [op for op in decoder.ops if isinstance(op, PagedAttention)]
        self._attention = {op: operators.paged_attention(_spec(op)) for op in attentions}
        self._ropes = {op.rope: _rope_tables(op.rope, self._positions, device) for op in attentions if op.rope}
        self._starts = torch.arange(limits.max_sequences + 1, dtype=torch.int32, device=device)
        self._gains = {
            name: weights.vectors[name].half() for op in attentions for name in (op.q_norm, op.k_norm) if name
        }

    def release(self) -> None:
        """Give the memory of the cache and the weights back. Nothing runs afterwards."""
        self.caches.clear()
        self.weights.clear()

    @property
    def cache_bytes(self) -> int:
        return sum(tensor.nbytes for pair in self.caches for tensor in pair)

    def body(self, bucket: BodyBucket) -> None:
        """Queue the embedding and the layers, up to the rows whose logits are wanted."""
        values: dict[str, torch.Tensor | Sum] = {}
        for op in self._body:
            self._apply(op, values, bucket)

    def head(self, bucket: HeadBucket) -> None:
        """Queue the logits and the candidates of those rows."""
        values: dict[str, torch.Tensor | Sum] = {self._selected: self._rows[: bucket.rows]}
        for op in self._head:
            if isinstance(op, Logits):
                self._find(op, _added(values, op.input), bucket)
            else:
                self._apply(op, values, None)

    def _apply(self, op: LayerOp, values: dict[str, torch.Tensor | Sum], bucket: BodyBucket | None) -> None:
        match op, bucket:
            case Embed(), BodyBucket():
                values[op.output] = self._embedded(op, bucket.tokens)
            case RmsNorm(), _:
                values[op.output] = self._normed(op, values)
            case Linear(), _:
                values[op.output] = self._product(op, values)
            case GatedLinear(), _:
                values[op.output] = self._gated(op, _added(values, op.input))
            case PagedAttention(), BodyBucket():
                values[op.output] = self._attended(op, _added(values, op.qkv), bucket)
            case SelectRows(), BodyBucket():
                self._select(values[op.input], bucket.sequences)
            case _:
                raise AssertionError(f"{op} is in the wrong part of the decoder")

    def _dtype(self, value: str) -> torch.dtype:
        return torch.float32 if value in self._summed else torch.float16

    def _embedded(self, op: Embed, tokens: int) -> torch.Tensor:
        weight, candidates = self.weights.matrices[matrix_names(op)], self.step.candidates
        width = weight.shape[1]
        output = torch.empty((tokens, width), dtype=torch.float32, device=weight.device)
        kernels.embed_kernel[(tokens,)](
            self.step["input_ids"], self.step["feed_rows"], candidates, candidates.stride(0), weight, output, op.scale,
            WIDTH=width, BLOCK=power_of_two(width),
        )  # fmt: skip
        return output

    def _normed(self, op: RmsNorm, values: dict[str, torch.Tensor | Sum]) -> torch.Tensor:
        """Adds up the sum that it reads."""
        value = values[op.input]
        x, delta = (value.residual, value.delta) if isinstance(value, Sum) else (value, None)
        if delta is not None:
            values[op.input] = torch.empty_like(x)
        residual = _added(values, op.residual) if op.residual else None
        output = torch.empty_like(x, dtype=self._dtype(op.output))
        width = x.shape[1]
        kernels.rms_norm_kernel[(x.shape[0],)](
            x, delta, self.weights.vectors[op.weight], residual, values[op.input], output, op.epsilon,
            WIDTH=width, BLOCK=power_of_two(width), HAS_DELTA=delta is not None, HAS_RESIDUAL=residual is not None,
        )  # fmt: skip
        return output

    def _product(self, op: Linear, values: dict[str, torch.Tensor | Sum]) -> torch.Tensor | Sum:
        product = multiply(_added(values, op.input), self.weights.matrices[op.weights], self._dtype(op.output))
        if op.weights in self.weights.biases:
            product += self.weights.biases[op.weights]
        return Sum(_added(values, op.residual), product) if op.residual else product

    def _gated(self, op: GatedLinear, x: torch.Tensor) -> torch.Tensor:
        product = multiply(x, self.weights.matrices[matrix_names(op)], torch.float32)
        rows, width = product.shape[0], product.shape[1] // 2
        output = torch.empty((rows, width), dtype=torch.float16, device=x.device)
        block = min(GATE_BLOCK, power_of_two(width))
        kernels.gate_kernel[(rows, -(-width // block))](
            product, output, WIDTH=width, BLOCK=block, ACTIVATION=op.activation
        )
        return output

    def _attended(self, op: PagedAttention, qkv: torch.Tensor, bucket: BodyBucket) -> torch.Tensor:
        key_cache, value_cache = self.caches[op.layer]
        count = bucket.sequences
        inputs = {
            "query": qkv,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "cumulative_sequence_length": (
                self._starts if bucket.decodes_only else self.step["cumulative_sequence_length"]
            )[: count + 1],
            "past_seqlens": self.step["past_seqlens"][:count],
            "block_table": self.step.block_table[:count],
            "attention_metadata": np.array([1 if bucket.decodes_only else bucket.tokens, self._positions], np.int32),
        }
        if op.rope:
            inputs["cos_cache"], inputs["sin_cache"] = self._ropes[op.rope]
        if op.q_norm and op.k_norm:
            inputs["q_norm_weight"], inputs["k_norm_weight"] = self._gains[op.q_norm], self._gains[op.k_norm]
        output: torch.Tensor = self._attention[op](tier=SPLIT_KEYS if bucket.decodes_only else TILES, **inputs)[
            "output"
        ]
        return output

    def _select(self, value: torch.Tensor | Sum, count: int) -> None:
        rows = self.step["logits_rows"][:count]
        if isinstance(value, Sum):
            torch.index_select(value.residual, 0, rows, out=self._rows[:count])
            self._rows[:count] += value.delta.index_select(0, rows)
        else:
            torch.index_select(value, 0, rows, out=self._rows[:count])

    def _find(self, op: Logits, x: torch.Tensor, bucket: HeadBucket) -> None:
        logits = multiply(x, self.weights.matrices[matrix_names(op)], torch.float32)
        if op.softcap:
            logits = torch.tanh(logits / op.softcap) * op.softcap
        if bucket.greedy:
            find_best(logits, self.step.candidates, self.limits.max_candidates)
        else:
            find_candidates(logits, self.step, self.limits.max_candidates)


def multiply(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x @ weight.T` of float16, summed in float32 and rounded once, to `dtype`."""
    if x.device.type == "cpu":  # which has no such product
        return (x.float() @ weight.float().T).to(dtype)
    if dtype != x.dtype:
        return torch.mm(x, weight.T, out_dtype=dtype)
    matmul = torch.backends.cuda.matmul
    allowed = matmul.allow_fp16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = False  # else the parts of a split sum are added up in float16
    try:
        return torch.mm(x, weight.T)
    finally:
        matmul.allow_fp16_reduced_precision_reduction = allowed


def _summed(op: LayerOp) -> Iterator[str]:
    """The values that norms and sums read."""
    match op:
        case RmsNorm():
            yield from (op.input, op.residual or op.input)
        case Linear() if op.residual:
            yield op.residual
        case SelectRows():
            yield op.input


def _added(values: dict[str, torch.Tensor | Sum], name: str) -> torch.Tensor:
    """The value of that name; adds it up where nobody has."""
    value = values[name]
    if isinstance(value, Sum):
        value = values[name] = value.residual + value.delta
    return value


def _spec(op: PagedAttention) -> PagedAttentionSpec:
    return PagedAttentionSpec(
        num_heads=op.num_heads,
        kv_num_heads=op.kv_num_heads,
        scale=op.scale,
        softcap=op.softcap,
        local_window_size=op.local_window_size,
        do_rotary=op.rope is not None,
        rotary_interleaved=op.rope is not None and op.rope.interleaved,
        qk_norm_epsilon=op.norm_epsilon,
    )


def _rope_tables(rope: Rope, positions: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """float16 cos and sin `[positions, dim / 2]`, times the attention factor, made in double precision."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * np.array(rope.inverse_frequencies)
    cos, sin = (np.float16(turn(angles) * rope.attention_factor) for turn in (np.cos, np.sin))
    return torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device)
