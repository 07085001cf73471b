"""What the attention programs are made for and what they bind, whoever calls them: a decoder or an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pageloom.backends.webgpu.device import Buffer
from pageloom.backends.webgpu.program import ParameterValue
from pageloom.backends.webgpu.programs.elements import ElementKind

Sink = Literal["none", "zero", "factors"]
ScaledBy = Literal["none", "k_scale", "v_scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionForm:
    """Parameters that all attention templates share.

    The query is f32, carries rotary, the logit scale and the scale of a quantised key. `latent` reads V from the first
    `v_head_size` channels of the key cache. `sink` is no sink, a sink of logit 0, or one of each head in `factors`.
    `scaled_by` names the section of `factors` that output channels are multiplied with, or is "none".
    """

    num_heads: int
    kv_num_heads: int
    head_size: int
    v_head_size: int
    block_size: int
    key_kind: ElementKind
    value_kind: ElementKind
    output_kind: ElementKind
    softcap: float = 0.0
    window: int = -1
    causal: bool = True
    latent: bool = False
    sink: Sink = "none"
    scaled_by: ScaledBy = "none"
    factors: str = ""
    log_sum_exp: bool = False

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.kv_num_heads

    def parameters(self, *left_out: str) -> dict[str, ParameterValue]:
        """The fields as template parameters, but for those of `left_out`."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in left_out}


@dataclass(frozen=True, slots=True)
class AttentionBuffers:
    """What the attention programs bind.

    `query` is f32 `[max_tokens, num_heads * head_size]`, `output` `[max_tokens, num_heads * v_head_size]`. `sums` is
    scratch of the output's shape in f32, for programs that need it; `log_sum_exp` f32 `[max_tokens, num_heads]`.
    `decode_grid` holds the decode program's grid where the device finds it.
    """

    query: Buffer
    key_cache: Buffer
    value_cache: Buffer | None
    output: Buffer
    step: Buffer
    partials: Buffer | None = None
    sums: Buffer | None = None
    factors: Buffer | None = None
    log_sum_exp: Buffer | None = None
    decode_grid: Buffer | None = None


def bound(*buffers: Buffer | None) -> tuple[Buffer, ...]:
    """The buffers that are there, in order."""
    return tuple(buffer for buffer in buffers if buffer is not None)
