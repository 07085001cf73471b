"""A decoder as a list of layer operations over named values, described once and run by every Runner.

A value is a 2-D activation `[num_tokens, width]` (or `[num_logits_rows, width]` after `SelectRows`) known by its name.
Weights are known by their GGUF tensor names; a linear weight is `[out_features, in_features]`, row-major.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of the first `dim` channels of every head.

    Pair i turns by `position * inverse_frequencies[i]`. `interleaved` pairs channels (2i, 2i + 1); otherwise channel i
    pairs with i + dim / 2. cos and sin are multiplied by `attention_factor`.
    """

    dim: int
    interleaved: bool
    inverse_frequencies: tuple[float, ...]
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Embed:
    """output[t] = weight[token_id[t]] * scale."""

    weight: str
    output: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """output = input * rsqrt(mean(input^2) + epsilon) * weight, over the last axis; then + residual if named."""

    input: str
    weight: str
    output: str
    epsilon: float
    residual: str | None = None


@dataclass(frozen=True, slots=True)
class Linear:
    """output = input @ concat(weights).T (+ concat(biases)) (+ residual).

    Several weights stand for one matrix of their rows in order, so a Runner may store them as one. `biases` is empty or
    has one entry (or None) for each weight.
    """

    input: str
    weights: tuple[str, ...]
    output: str
    biases: tuple[str | None, ...] = ()
    residual: str | None = None


@dataclass(frozen=True, slots=True)
class GatedLinear:
    """output = activation(input @ gate.T) * (input @ up.T)."""

    input: str
    gate: str
    up: str
    output: str
    activation: Activation


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """QK-norm, rotary, write of K and V to the paged cache of `layer`, then attention through the cache.

    `qkv` is packed `[num_tokens, (num_heads + 2 * kv_num_heads) * head_size]`: all query heads, then the K heads, then
    the V heads. Causal. `local_window_size` W > 0 shows a query exactly W keys, its own included; -1 is off.
    `softcap` 0 is off. `q_norm` and `k_norm` name RMSNorm gains of `[head_size]`, or are None.
    """

    layer: int
    qkv: str
    output: str
    num_heads: int
    kv_num_heads: int
    head_size: int
    scale: float
    rope: Rope | None
    local_window_size: int = -1
    softcap: float = 0.0
    q_norm: str | None = None
    k_norm: str | None = None
    norm_epsilon: float = 1e-6


@dataclass(frozen=True, slots=True)
class SelectRows:
    """output = the rows of input whose logits the step wants (`StepBatch.logits_rows`)."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Logits:
    """logits = input @ weight.T, softcapped (cap * tanh(x / cap)) where softcap > 0. The last operation."""

    input: str
    weight: str
    softcap: float = 0.0


LayerOp = Embed | RmsNorm | Linear | GatedLinear | PagedAttention | SelectRows | Logits


def matrix_names(op: LayerOp) -> tuple[str, ...]:
    """The tensors of the one matrix that an operation multiplies with or looks up in; () for other operations."""
    match op:
        case Embed() | Logits():
            return (op.weight,)
        case Linear():
            return op.weights
        case GatedLinear():
            return op.gate, op.up
        case _:
            return ()


def vector_names(op: LayerOp) -> tuple[str, ...]:
    """The gains and biases that an operation reads."""
    match op:
        case RmsNorm():
            return (op.weight,)
        case PagedAttention():
            return tuple(name for name in (op.q_norm, op.k_norm) if name is not None)
        case Linear():
            return tuple(name for name in op.biases if name is not None)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole decoder. `widths` gives the last dimension of every named value."""

    architecture: str
    ops: tuple[LayerOp, ...]
    widths: dict[str, int]
    num_layers: int
    kv_num_heads: int
    head_size: int
    vocab_size: int
    context_length: int
