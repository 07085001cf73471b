"""From a described model file to a Runner on an NVIDIA GPU."""

from __future__ import annotations

import torch

from pageloom.backends.cuda.model.decoder_plan import DecoderPlan
from pageloom.backends.cuda.model.device_errors import device_errors
from pageloom.backends.cuda.model.runner import CudaRunner
from pageloom.backends.cuda.model.weights import load_decoder_weights
from pageloom.backends.cuda.operators import CudaOperators
from pageloom.engine.batch import RunnerLimits
from pageloom.engine.runner_settings import (
    RunnerSettings,
    check_settings,
    half_cache_blocks,
    require_half_cache,
    runner_limits,
)
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.decoder import ModelDescription
from pageloom.model.layer_ops import Decoder
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

MOST_KV_MEMORY = 4 * 2**30
"""Of the default budget, which takes no more than half of what is free."""
DEFAULT_MAX_TOKENS = 2048
DEFAULT_MAX_SEQUENCES = 64
SMALLEST_BLOCK = 16
HEAD_ALIGNMENT = 8


def choose_limits(decoder: Decoder, settings: RunnerSettings, free_bytes: int) -> RunnerLimits:
    """The limits of a Runner for this model on a GPU with `free_bytes` left beside the weights.

    Raises `InvalidArgument` for settings that cannot be, `NotSupported` for heads that the kernels do not take,
    `CapacityExceeded` where not one KV block fits.
    """
    check_settings(settings)
    require_half_cache(settings, "CUDA")
    if settings.prefer is not None:
        raise InvalidArgument(f"prefer is {settings.prefer!r}, a kind of WebGPU adapter; CUDA has none", param="prefer")
    block_size = settings.block_size
    if block_size < SMALLEST_BLOCK or block_size & (block_size - 1):
        raise InvalidArgument(
            f"block_size is {block_size}; on CUDA a power of two of at least {SMALLEST_BLOCK} is needed",
            param="block_size",
        )
    if decoder.head_size % HEAD_ALIGNMENT:
        raise NotSupported(
            f"the heads have {decoder.head_size} channels; on CUDA a multiple of {HEAD_ALIGNMENT} is needed",
            param="backend",
        )
    return runner_limits(
        settings,
        decoder,
        num_blocks=half_cache_blocks(settings, decoder, min(MOST_KV_MEMORY, free_bytes // 2)),
        default_max_tokens=DEFAULT_MAX_TOKENS,
        default_max_sequences=DEFAULT_MAX_SEQUENCES,
    )


async def load_runner(
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    operators: CudaOperators,
    on_progress: OnProgress = ignore_progress,
) -> CudaRunner:
    """Load the weights to the device of `operators` and capture every step; see the package's `load_runner`."""
    device = operators.device
    choose_limits(description.decoder, settings, MOST_KV_MEMORY * 2)  # refuses before the weights are read
    on_progress(Progress("weights", 0, 1))
    with device_errors():
        weights = await load_decoder_weights(source, description, device, on_progress)
        free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else MOST_KV_MEMORY // 4
        limits = choose_limits(description.decoder, settings, free_bytes)
        runner = CudaRunner(DecoderPlan(operators, description.decoder, weights, limits), limits)
        runner.warm_up(on_progress)
    return runner
