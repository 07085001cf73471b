"""What a model takes of a device, told from the header of its file before anything is loaded: pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.decoder_weights import matrices
from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.kv_cache import block_bytes
from pageloom.backends.webgpu.load import choose_limits
from pageloom.backends.webgpu.weight_layout import binding_limit, describe_weight
from pageloom.engine.runner_settings import RunnerSettings, context_length
from pageloom.model.decoder import ModelDescription


@dataclass(frozen=True, slots=True)
class WeightsFit:
    """Bytes on the device. `largest` names the largest matrix, whose `largest_bytes` lie in `largest_shards` parts,
    each in buffers of at most `binding_limit`."""

    num_bytes: int
    largest: str
    largest_bytes: int
    largest_shards: int
    binding_limit: int


@dataclass(frozen=True, slots=True)
class CacheFit:
    """The KV pool that settings would make: `num_blocks` of `block_size` tokens. `context_length` is what one sequence
    may then have, in tokens."""

    dtype: str
    bytes_per_token: int
    num_bytes: int
    num_blocks: int
    block_size: int
    context_length: int


def fit_weights(info: DeviceInfo, description: ModelDescription) -> WeightsFit:
    """The matrices of a decoder on this device; norms and biases are too small to count.

    Raises `NotSupported` for a matrix that the device cannot hold.
    """
    tensors = description.gguf.tensors
    layouts = {
        names[0]: describe_weight([tensors[name] for name in names], info.adapter_class)
        for names, _ in matrices(description.decoder.ops)
    }
    shards = {name: len(layout.shards(info)) for name, layout in layouts.items()}
    largest = max(layouts, key=lambda name: layouts[name].bytes)
    return WeightsFit(
        num_bytes=sum(layout.bytes for layout in layouts.values()),
        largest=largest,
        largest_bytes=layouts[largest].bytes,
        largest_shards=shards[largest],
        binding_limit=binding_limit(info),
    )


def fit_cache(info: DeviceInfo, description: ModelDescription, settings: RunnerSettings) -> CacheFit:
    """Raises as `choose_limits` does."""
    decoder = description.decoder
    limits = choose_limits(info, decoder, settings)
    all_layers = 2 * decoder.num_layers * block_bytes(decoder, limits.block_size, settings.kv_dtype)
    return CacheFit(
        dtype=settings.kv_dtype,
        bytes_per_token=all_layers // limits.block_size,
        num_bytes=limits.num_blocks * all_layers,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        context_length=min(
            context_length(settings, decoder),
            limits.max_blocks_per_sequence * limits.block_size,
        ),
    )
