"""A decoder's layer operations as compiled calls over arrays that stay where they are.

Every call reads from the step's arrays how many rows count, so that one binding serves all steps; attention alone is
bound for buckets of tokens (powers of two), since it also clears the rows that belong to no sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pageloom_cpu as kernels

from pageloom.backends.cpu.arrays import zeros_on_lines
from pageloom.backends.cpu.model.step_arrays import StepArrays
from pageloom.backends.cpu.model.weights import DecoderWeights
from pageloom.backends.cpu.options import Level
from pageloom.engine.batch import RunnerLimits
from pageloom.errors import NotSupported, OutOfMemory
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

LOGITS = "logits"

Array = npt.NDArray[Any]
Call = (
    kernels.Append
    | kernels.Attention
    | kernels.Embed
    | kernels.RmsNorm
    | kernels.Linear
    | kernels.GatedLinear
    | kernels.SelectRows
    | kernels.Candidates
)


@dataclass(frozen=True, slots=True)
class PagedKvCache:
    """`keys[layer]` and `values[layer]` are float16 `[num_blocks, block_size, kv_num_heads, head_size]`."""

    keys: tuple[Array, ...]
    values: tuple[Array, ...]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (*self.keys, *self.values))


def allocate_kv_cache(decoder: Decoder, limits: RunnerLimits) -> PagedKvCache:
    """Zeros, which take memory once they are written. Raises `OutOfMemory`."""
    shape = (limits.num_blocks, limits.block_size, decoder.kv_num_heads, decoder.head_size)
    layers = range(decoder.num_layers)
    try:
        keys, values = (tuple(zeros_on_lines(shape, np.float16) for _ in layers) for _ in ("keys", "values"))
        return PagedKvCache(keys, values)
    except MemoryError as error:
        raise OutOfMemory(f"no memory for {limits.num_blocks} KV blocks; take fewer") from error


def rope_tables(rope: Rope, num_positions: int) -> tuple[Array, Array]:
    """float32 cos and sin `[num_positions, dim / 2]`, times the attention factor, made in double precision."""
    angles = np.arange(num_positions, dtype=np.float64)[:, None] * np.array(rope.inverse_frequencies)
    return (
        (np.cos(angles) * rope.attention_factor).astype(np.float32),
        (np.sin(angles) * rope.attention_factor).astype(np.float32),
    )


class DecoderPlan:
    """Owns the activations, the step's arrays and the cache of one decoder, and binds its calls to them."""

    def __init__(self, decoder: Decoder, weights: DecoderWeights, limits: RunnerLimits, level: Level) -> None:
        self.step = StepArrays(limits)
        self.cache = allocate_kv_cache(decoder, limits)
        self.weights = weights
        self._decoder = decoder
        self._limits = limits
        self.level = level
        split = next(index for index, op in enumerate(decoder.ops) if isinstance(op, SelectRows))
        self._values = self._allocate_values(decoder.ops[split:])
        positions = limits.max_blocks_per_sequence * limits.block_size
        attentions = [op for op in decoder.ops if isinstance(op, PagedAttention)]
        self._ropes = {rope: rope_tables(rope, positions) for rope in {op.rope for op in attentions if op.rope}}
        self._shared: dict[LayerOp, Call] = {
            op: self._bind(op, self.step.num_logits_rows if index > split else self.step.num_tokens)
            for index, op in enumerate(decoder.ops)
            if not isinstance(op, PagedAttention)
        }
        self.find_candidates = self._bind_candidates()
        self._steps: dict[tuple[int, bool], kernels.Step] = {}

    def bucket(self, num_tokens: int) -> int:
        """The power of two of at least `num_tokens`, or the most that a step has."""
        return int(min(1 << (num_tokens - 1).bit_length(), self._limits.max_tokens))

    @property
    def logits(self) -> Array:
        """float32 `[max_sequences, vocab_size]`, of the step that ran last."""
        return self._values[LOGITS]

    def calls(self, bucket: int, *, to_logits: bool = False) -> kernels.Step:
        """The whole step, or all before `find_candidates`, for at most `bucket` tokens; bound when it is first asked
        for."""
        if (bucket, to_logits) not in self._steps:
            sequences = self._sequences(bucket)
            calls: list[Call] = []
            for op in self._decoder.ops:
                if isinstance(op, PagedAttention):
                    calls += self._bind_attention(op, sequences, bucket)
                else:
                    calls.append(self._shared[op])
            self._steps[bucket, to_logits] = kernels.Step(calls if to_logits else [*calls, self.find_candidates])
        return self._steps[bucket, to_logits]

    def _allocate_values(self, head: tuple[LayerOp, ...]) -> dict[str, Array]:
        """A row for every token of a step, and behind `SelectRows` for every row whose logits are wanted."""
        few = {op.output for op in head if not isinstance(op, Logits)} | {LOGITS}
        widths = {**self._decoder.widths, LOGITS: self._decoder.vocab_size}
        rows = {name: self._limits.max_sequences if name in few else self._limits.max_tokens for name in widths}
        try:
            return {name: np.empty((rows[name], width), np.float32) for name, width in widths.items()}
        except MemoryError as error:
            raise OutOfMemory("no memory for the activations; take a smaller max_tokens or max_sequences") from error

    def _bind(self, op: LayerOp, count: Array) -> Call:
        values, matrices, vectors = self._values, self.weights.matrices, self.weights.vectors
        match op:
            case Embed():
                return kernels.Embed(matrices[op.weight], self.step.input_ids, values[op.output], count, scale=op.scale)
            case RmsNorm():
                return kernels.RmsNorm(
                    values[op.input],
                    vectors[op.weight],
                    values[op.output],
                    count,
                    epsilon=op.epsilon,
                    residual=values[op.residual] if op.residual else None,
                    level=self.level,
                )
            case Linear():
                return kernels.Linear(
                    [matrices[name] for name in op.weights],
                    values[op.input],
                    values[op.output],
                    count,
                    biases=[None if name is None else vectors[name] for name in op.biases],
                    residual=values[op.residual] if op.residual else None,
                )
            case GatedLinear():
                return kernels.GatedLinear(
                    matrices[op.gate],
                    matrices[op.up],
                    values[op.input],
                    values[op.output],
                    count,
                    activation=op.activation,
                )
            case SelectRows():
                return kernels.SelectRows(
                    values[op.input], self.step.logits_rows, values[op.output], self.step.num_logits_rows
                )
            case Logits():
                return kernels.Linear(
                    [matrices[op.weight]], values[op.input], values[LOGITS], count, softcap=op.softcap
                )
            case PagedAttention():
                raise NotSupported(f"layer {op.layer} attends outside a bucket of tokens")

    def _bind_candidates(self) -> kernels.Candidates:
        step = self.step
        return kernels.Candidates(
            self._values[LOGITS],
            step.num_logits_rows,
            num_candidates=step.num_candidates,
            token_ids=step.candidates.token_ids,
            values=step.candidates.logits,
            log_sum_exp=step.candidates.logsumexp,
            adjustment_rows=step.adjustments.rows,
            adjustment_tokens=step.adjustments.tokens,
            adjustment_divisors=step.adjustments.divisors,
            adjustment_biases=step.adjustments.biases,
            num_adjustments=step.adjustments.count,
            level=self.level,
        )

    def _sequences(self, bucket: int) -> kernels.Sequences:
        count = min(bucket, self._limits.max_sequences)
        return kernels.Sequences(
            count,
            bucket,
            query_offsets=self.step.cumulative_sequence_length[: count + 1],
            past_lengths=self.step.past_seqlens[:count],
        )

    def _bind_attention(self, op: PagedAttention, sequences: kernels.Sequences, bucket: int) -> list[Call]:
        """The queries are prepared in place."""
        heads = self._values[op.qkv][:bucket].reshape(bucket, -1, op.head_size)
        query, key, value = np.split(heads, [op.num_heads, op.num_heads + op.kv_num_heads], axis=1)
        vectors = self.weights.vectors
        cos, sin = self._ropes[op.rope] if op.rope else (None, None)
        keys, values = self.cache.keys[op.layer], self.cache.values[op.layer]
        block_table = self.step.block_table[: min(bucket, self._limits.max_sequences)]
        append = kernels.Append(
            sequences,
            query=query,
            query_output=query,
            key=key,
            value=value,
            key_cache=keys,
            value_cache=values,
            block_table=block_table,
            cos=cos,
            sin=sin,
            interleaved=op.rope is not None and op.rope.interleaved,
            q_norm_weight=vectors[op.q_norm] if op.q_norm else None,
            k_norm_weight=vectors[op.k_norm] if op.k_norm else None,
            q_norm_epsilon=op.norm_epsilon,
            k_norm_epsilon=op.norm_epsilon,
            level=self.level,
        )
        attention = kernels.Attention(
            sequences,
            query,
            self._values[op.output][:bucket].reshape(bucket, op.num_heads, op.head_size),
            keys,
            values,
            block_table=block_table,
            scale=op.scale,
            softcap=op.softcap,
            window=max(0, op.local_window_size),
            level=self.level,
        )
        return [append, attention]
