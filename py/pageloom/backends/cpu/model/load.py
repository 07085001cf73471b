"""From a described model file to a Runner on the CPU."""

from __future__ import annotations

from pageloom.backends.cpu.model.decoder_plan import DecoderPlan
from pageloom.backends.cpu.model.runner import CpuRunner
from pageloom.backends.cpu.model.weights import load_decoder_weights
from pageloom.backends.cpu.options import Level
from pageloom.engine.batch import RunnerLimits
from pageloom.engine.runner_settings import RunnerSettings, check_settings, require_half_cache, runner_limits
from pageloom.errors import CapacityExceeded, InvalidArgument
from pageloom.model.decoder import ModelDescription
from pageloom.model.layer_ops import Decoder
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

KV_ELEMENT_BYTES = 2
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
    block_bytes = (
        2 * KV_ELEMENT_BYTES * decoder.num_layers * decoder.kv_num_heads * decoder.head_size * settings.block_size
    )
    budget = settings.kv_memory or DEFAULT_KV_MEMORY
    num_blocks = settings.num_blocks or budget // block_bytes
    if num_blocks < 1:
        raise CapacityExceeded(
            f"one KV block takes {block_bytes} bytes over {decoder.num_layers} layers; the budget is {budget}",
            param="kv_memory",
        )
    return runner_limits(
        settings,
        decoder,
        num_blocks=num_blocks,
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
