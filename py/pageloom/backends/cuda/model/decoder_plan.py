"""A decoder's layer operations as kernels and matrix products over tensors, in buckets of steps.

The stream of activations that norms and sums read is float32; what a product or attention reads is float16, and every
product is summed in float32. A step has a row for each sequence with one new token and, behind them, one for each token
of the others; each kind is attended by a kernel of its own in every step, so that a row's bits depend on no other's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tiers import Explanation
from pageloom.backends.cuda.geometry import power_of_two
from pageloom.backends.cuda.model import kernels
from pageloom.backends.cuda.model.candidates import find_best, find_candidates
from pageloom.backends.cuda.model.products import gated_linear, linear
from pageloom.backends.cuda.model.step_buffers import StepBuffers
from pageloom.backends.cuda.model.weights import DecoderWeights
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
    matrix_names,
)


@dataclass(frozen=True, slots=True)
class BodyBucket:
    """At most so many tokens of prompts; 0 for a step without."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class HeadBucket:
    """At most so many rows; `greedy` where the best token is enough, of logits that nothing changes."""

    rows: int
    greedy: bool


Values = dict[str, torch.Tensor]


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
        values: Values = {}
        for op in self._body:
            self._apply(op, values, bucket)

    def head(self, bucket: HeadBucket) -> None:
        """Queue the logits and the candidates of those rows."""
        values: Values = {self._selected: self._rows[: bucket.rows]}
        for op in self._head:
            if isinstance(op, Logits):
                self._find(op, values[op.input], bucket)
            else:
                self._apply(op, values, None)

    def _apply(self, op: LayerOp, values: Values, bucket: BodyBucket | None) -> None:
        match op, bucket:
            case Embed(), BodyBucket():
                values[op.output] = self._embedded(op, self.limits.max_sequences + bucket.prompt_tokens)
            case RmsNorm(), _:
                values[op.output] = self._normed(op, values)
            case Linear(), _:
                values[op.output] = self._product(op, values)
            case GatedLinear(), _:
                weight = self.weights.matrices[matrix_names(op)]
                values[op.output] = gated_linear(values[op.input], weight, op.activation)
            case PagedAttention(), BodyBucket():
                values[op.output] = self._attended(op, values[op.qkv], bucket)
            case SelectRows(), BodyBucket():
                torch.index_select(values[op.input], 0, self.step["logits_rows"], out=self._rows)
            case _:
                raise AssertionError(f"{op} is in the wrong part of the decoder")

    def _dtype(self, value: str) -> torch.dtype:
        return torch.float32 if value in self._summed else torch.float16

    def _embedded(self, op: Embed, rows: int) -> torch.Tensor:
        weight, candidates = self.weights.matrices[matrix_names(op)], self.step.candidates
        width = weight.shape[1]
        output = torch.empty((rows, width), dtype=torch.float32, device=weight.device)
        kernels.embed_kernel[(rows,)](
            self.step["input_ids"], self.step["feed_rows"], candidates, candidates.stride(0), weight, output, op.scale,
            WIDTH=width, BLOCK=power_of_two(width),
        )  # fmt: skip
        return output

    def _normed(self, op: RmsNorm, values: Values) -> torch.Tensor:
        x = values[op.input]
        rows, width = x.shape
        output = torch.empty_like(x, dtype=self._dtype(op.output))
        kernels.rms_norm_kernel[(rows,)](
            x, self.weights.vectors[op.weight], values[op.residual] if op.residual else None, output, op.epsilon,
            WIDTH=width, BLOCK=power_of_two(width), HAS_RESIDUAL=op.residual is not None,
        )  # fmt: skip
        return output

    def _product(self, op: Linear, values: Values) -> torch.Tensor:
        return linear(
            values[op.input],
            self.weights.matrices[op.weights],
            self._dtype(op.output),
            bias=self.weights.biases.get(op.weights),
            residual=values[op.residual] if op.residual else None,
        )

    def explain_attention(self) -> dict[str, Explanation[Tier]]:
        """What attends single tokens, and what prompts, with the reasons against anything faster."""
        op, most = next(iter(self._attention)), self.limits.max_tokens
        singles = self._inputs(op, self._no_rows(op, self.limits.max_sequences))
        prompts = self._inputs(op, self._no_rows(op, most), most)
        attention = self._attention[op]
        return {"single tokens": attention.explain(**singles), "prompts": attention.explain(**prompts)}

    def _attended(self, op: PagedAttention, qkv: torch.Tensor, bucket: BodyBucket) -> torch.Tensor:
        """Of sequences with one new token first, and then of the others."""
        singles, attention = self.limits.max_sequences, self._attention[op]
        output: torch.Tensor = attention(**self._inputs(op, qkv[:singles]))["output"]
        if not bucket.prompt_tokens:
            return output
        prompts = attention(**self._inputs(op, qkv[singles:], bucket.prompt_tokens))
        return torch.cat((output, prompts["output"]))

    def _inputs(self, op: PagedAttention, qkv: torch.Tensor, prompt_tokens: int = 0) -> dict[str, Any]:
        """Of sequences with one new token, or of those with at most `prompt_tokens`."""
        key_cache, value_cache = self.caches[op.layer]
        single = not prompt_tokens
        inputs = {
            "query": qkv,
            "key_cache": key_cache,
            "value_cache": value_cache,
            "cumulative_sequence_length": self._starts if single else self.step["prompt_starts"],
            "past_seqlens": self.step["past" if single else "prompt_past"],
            "block_table": self.step.table("table" if single else "prompt_table"),
            "attention_metadata": np.array([prompt_tokens or 1, self._positions], np.int32),
        }
        if op.rope:
            inputs["cos_cache"], inputs["sin_cache"] = self._ropes[op.rope]
        if op.q_norm and op.k_norm:
            inputs["q_norm_weight"], inputs["k_norm_weight"] = self._gains[op.q_norm], self._gains[op.k_norm]
        return inputs

    def _no_rows(self, op: PagedAttention, rows: int) -> torch.Tensor:
        """Packed Q, K and V that nobody reads."""
        width = (op.num_heads + 2 * op.kv_num_heads) * op.head_size
        return torch.empty((rows, width), dtype=torch.float16, device=self.operators.device)

    def _find(self, op: Logits, x: torch.Tensor, bucket: HeadBucket) -> None:
        logits = linear(x, self.weights.matrices[matrix_names(op)], torch.float32)
        if op.softcap:
            logits = torch.tanh(logits / op.softcap) * op.softcap
        if bucket.greedy:
            find_best(logits, self.step.candidates, self.limits.max_candidates)
        else:
            find_candidates(logits, self.step, self.limits.max_candidates)


def _summed(op: LayerOp) -> Iterator[str]:
    """The values that norms and sums read."""
    match op:
        case RmsNorm():
            yield from (op.input, op.residual or op.input)
        case Linear() if op.residual:
            yield op.residual
        case SelectRows():
            yield op.input


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
