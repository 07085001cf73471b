"""The decoder of a language model on the CPU: weights in the formats of their file, and steps of compiled calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.options import CpuOptions
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.errors import NotSupported
from pageloom.model.decoder import ModelDescription
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, ignore_progress

if TYPE_CHECKING:
    from pageloom.backends.cpu.model.runner import CpuRunner


async def load_runner(
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    on_progress: OnProgress = ignore_progress,
) -> CpuRunner:
    """Load the weights and bind the steps. Threads and the instruction set are those of `CpuOptions`' variables.

    Raises `NotSupported` without the compiled kernels, `BadModelFile` for weights that are not finite, `OutOfMemory`,
    and what `choose_limits` and the source raise.
    """
    context = CpuContext(CpuOptions.of())
    if context.level is None:
        raise NotSupported(f"models cannot run on the CPU: {context.why_no_kernels}", param="backend")
    from pageloom.backends.cpu.model import load  # noqa: PLC0415 - needs the compiled kernels

    return await load.load_runner(source, description, settings, context.level, on_progress)
