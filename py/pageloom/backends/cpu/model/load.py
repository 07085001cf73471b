"""From a described model file to a Runner on the CPU."""

from __future__ import annotations

from pageloom.backends.cpu.model.decoder_plan import DecoderPlan
from pageloom.backends.cpu.model.runner import CpuRunner
from pageloom.backends.cpu.model.weights import load_decoder_weights
from pageloom.backends.cpu.options import Level
from pageloom.engine.batch import RunnerLimits
from pageloom.engine.runner_settings import (
    RunnerSettings,
    check_settings,
    half_cache_blocks,
    require_half_cache,
    runner_limits,
)
from pageloom.errors import InvalidArgument
from pageloom.model.decoder import ModelDescription
from pageloom.model.layer_ops import Decoder
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

DEFAULT_KV_MEMORY = 512 * 2**20
DEFAULT_MAX_TOKENS = 512
DEFAULT_MAX_SEQUENCES = 64


def choose_limits(decoder: Decoder, settings: RunnerSettings) -> RunnerLimits:
    """The limits of a Runner for this model.

    Raises `InvalidArgument` for settings that cannot be, `CapacityExceeded` where not one KV block fits.
    """
    check_settings(settings)
    require_half_cache(settings, "the CPU")
    if settings.prefer is not None:
        raise InvalidArgument(
            f"prefer is {settings.prefer!r}, a kind of WebGPU adapter; the CPU has none", param="prefer"
        )
    return runner_limits(
        settings,
        decoder,
        num_blocks=half_cache_blocks(settings, decoder, DEFAULT_KV_MEMORY),
        default_max_tokens=DEFAULT_MAX_TOKENS,
        default_max_sequences=DEFAULT_MAX_SEQUENCES,
    )


async def load_runner(
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    level: Level,
    on_progress: OnProgress = ignore_progress,
) -> CpuRunner:
    """Load the weights and bind the steps to the kernels of `level`.

    Raises `BadModelFile` for weights that are not finite, `OutOfMemory`, and what `choose_limits` and the source raise.
    """
    limits = choose_limits(description.decoder, settings)
    on_progress(Progress("weights", 0, 1))
    weights = await load_decoder_weights(source, description, level, on_progress)
    return CpuRunner(DecoderPlan(description.decoder, weights, limits, level), limits)
