"""From a described model file to a Runner on a WebGPU device."""

from __future__ import annotations

from pageloom.backends.webgpu.decoder_plan import DecoderPlan
from pageloom.backends.webgpu.decoder_weights import load_decoder_weights
from pageloom.backends.webgpu.device import Device, DeviceInfo
from pageloom.backends.webgpu.kv_cache import allocate_kv_cache, blocks_within, check_block_size, check_num_blocks
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.runner import WebGpuRunner
from pageloom.backends.webgpu.self_test import self_test
from pageloom.engine.batch import RunnerLimits
from pageloom.engine.runner_settings import RunnerSettings, check_settings, runner_limits
from pageloom.model.decoder import ModelDescription
from pageloom.model.layer_ops import Decoder
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, Progress, ignore_progress

MEBIBYTE = 2**20
DEFAULT_KV_MEMORY = {"software": 256 * MEBIBYTE, "gpu": 512 * MEBIBYTE}
DEFAULT_MAX_TOKENS = {"software": 64, "gpu": 512}
DEFAULT_MAX_SEQUENCES = {"software": 32, "gpu": 64}


def choose_limits(info: DeviceInfo, decoder: Decoder, settings: RunnerSettings) -> RunnerLimits:
    """The limits of a Runner for this device and model.

    Raises `InvalidArgument` for settings that cannot be, `CapacityExceeded` where not one KV block fits.
    """
    check_settings(settings)
    check_block_size(settings.block_size)
    adapter_class = info.adapter_class
    budget = settings.kv_memory or DEFAULT_KV_MEMORY[adapter_class]
    fitting = blocks_within(info, decoder, settings.block_size, budget, settings.kv_dtype)
    num_blocks = fitting if settings.num_blocks is None else settings.num_blocks
    check_num_blocks(info, decoder, settings.block_size, num_blocks, settings.kv_dtype)
    return runner_limits(
        settings,
        decoder,
        num_blocks=num_blocks,
        default_max_tokens=DEFAULT_MAX_TOKENS[adapter_class],
        default_max_sequences=DEFAULT_MAX_SEQUENCES[adapter_class],
    )


async def load_runner(
    device: Device,
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    on_progress: OnProgress = ignore_progress,
) -> WebGpuRunner:
    """Check the device, allocate the pool, upload the weights and compile. The runner owns `device`; where this
    raises, the device is closed.

    Raises `DeviceError` for a device that computes wrongly, `OutOfMemory`, `NotSupported`, and what the source raises.
    """
    try:
        decoder = description.decoder
        limits = choose_limits(device.info, decoder, settings)
        programs = ProgramCache(device)
        await self_test(device, programs)
        cache = allocate_kv_cache(device, decoder, limits.num_blocks, limits.block_size, settings.kv_dtype)
        await device.settle()
        on_progress(Progress("weights", 0, 1))
        weights = await load_decoder_weights(device, programs, source, description, on_progress)
        runner = WebGpuRunner(device, programs, DecoderPlan(device, decoder, weights, cache, limits), limits)
        await device.settle()
        await runner.compile(on_progress)
    except BaseException:
        device.close()
        raise
    return runner
