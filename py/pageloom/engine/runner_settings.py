"""What a caller may choose of a Runner, whatever computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from pageloom.engine.batch import RunnerLimits
from pageloom.errors import CapacityExceeded, InvalidArgument, NotSupported, shown
from pageloom.model.layer_ops import Decoder

KvDtype = Literal["float32", "float16", "float8e4m3fn"]
"""What the KV cache stores: float8 takes half of the memory of float16 and changes answers, float32 twice as much."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """None takes a default of the backend, on WebGPU for the class of adapter."""

    prefer: Literal["gpu", "software"] | None = None
    """The kind of WebGPU adapter."""
    block_size: int = 16
    num_blocks: int | None = None
    """KV blocks of the pool; by default as many as `kv_memory` holds."""
    kv_memory: int | None = None
    """Bytes for the KV pool, over all layers."""
    kv_dtype: KvDtype = "float16"
    """Element type of the KV pool; on the CPU and on CUDA there is only this one."""
    context_length: int | None = None
    """Tokens that one sequence may have; by default the model's context, if the pool holds it."""
    max_tokens: int | None = None
    """New tokens a step."""
    max_sequences: int | None = None
    """Sequences a step."""
    max_candidates: int = 64
    max_adjustments: int = 4096


_LEAST = {
    "block_size": 1, "num_blocks": 1, "kv_memory": 1, "context_length": 1, "max_tokens": 1, "max_sequences": 1,
    "max_candidates": 1, "max_adjustments": 0,
}  # fmt: skip


def check_settings(settings: RunnerSettings) -> None:
    """Raise `InvalidArgument`, naming the field, for a number that is none or too small, or an unknown element type."""
    for name, least in _LEAST.items():
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise InvalidArgument(
                f"{name} is {shown(value)}; it has to be a whole number of at least {least}", param=name
            )
    if settings.kv_dtype not in get_args(KvDtype):
        raise InvalidArgument(
            f"kv_dtype is {shown(settings.kv_dtype)}; it has to be one of {', '.join(get_args(KvDtype))}",
            param="kv_dtype",
        )


def require_half_cache(settings: RunnerSettings, backend: str) -> None:
    """Raise `NotSupported` unless the KV cache is to be float16."""
    if settings.kv_dtype != "float16":
        raise NotSupported(
            f"a KV cache of {settings.kv_dtype} is not supported by models on {backend}; take float16, or WebGPU",
            param="kv_dtype",
        )


def context_length(settings: RunnerSettings, decoder: Decoder) -> int:
    """Tokens that one sequence may have: what was chosen, no more than the decoder was made for."""
    return min(settings.context_length or decoder.context_length, decoder.context_length)


def half_cache_blocks(settings: RunnerSettings, decoder: Decoder, budget: int) -> int:
    """Blocks of a pool of float16 that was chosen, or that `budget` bytes hold where `kv_memory` is not chosen.

    Raises `CapacityExceeded` where not one block fits.
    """
    block_bytes = 4 * decoder.num_layers * decoder.kv_num_heads * decoder.head_size * settings.block_size
    budget = settings.kv_memory or budget
    num_blocks = settings.num_blocks or budget // block_bytes
    if num_blocks < 1:
        raise CapacityExceeded(
            f"one KV block takes {block_bytes} bytes over {decoder.num_layers} layers; the budget is {budget}",
            param="kv_memory",
        )
    return num_blocks


def runner_limits(
    settings: RunnerSettings,
    decoder: Decoder,
    *,
    num_blocks: int,
    default_max_tokens: int,
    default_max_sequences: int,
) -> RunnerLimits:
    """The limits of a Runner with a pool of `num_blocks`: what was chosen, no more than the decoder and pool hold."""
    max_tokens = settings.max_tokens or default_max_tokens
    return RunnerLimits(
        max_tokens=max_tokens,
        max_sequences=min(settings.max_sequences or default_max_sequences, max_tokens),
        num_blocks=num_blocks,
        block_size=settings.block_size,
        max_blocks_per_sequence=min(num_blocks, -(-context_length(settings, decoder) // settings.block_size)),
        max_candidates=min(settings.max_candidates, decoder.vocab_size),
        max_adjustments=settings.max_adjustments,
        vocab_size=decoder.vocab_size,
    )


def settings_of(limits: RunnerLimits, settings: RunnerSettings) -> RunnerSettings:
    """The settings by which a Runner gets just these limits; `settings` made the first one."""
    return replace(
        settings,
        block_size=limits.block_size,
        num_blocks=limits.num_blocks,
        context_length=limits.max_blocks_per_sequence * limits.block_size,
        max_tokens=limits.max_tokens,
        max_sequences=limits.max_sequences,
    )
