"""The decoder of a language model on an NVIDIA GPU: float16 weights, and steps captured as CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pageloom.backends.cuda.availability import INSTALL, is_interpreted
from pageloom.backends.cuda.operators import CudaOperators
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.errors import NotSupported
from pageloom.model.decoder import ModelDescription
from pageloom.model.source import RangedSource
from pageloom.progress import OnProgress, ignore_progress

if TYPE_CHECKING:
    from pageloom.backends.cuda.model.runner import CudaRunner

SPLITS = 8
"""Of the keys of a decode: enough for one long sequence, and the same for every number of sequences, so that an answer
does not depend on what else is in the batch."""


async def load_runner(
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    on_progress: OnProgress = ignore_progress,
) -> CudaRunner:
    """Load the weights and capture the steps, on the current GPU, or on the CPU where Triton's interpreter is on.

    Raises `NotSupported` where a GPU or a package is missing, `BadModelFile` for weights that float16 cannot hold,
    `OutOfMemory`, and what `choose_limits` and the source raise.
    """
    operators = CudaOperators("cpu" if is_interpreted() else None, forbid=("cudnn",), splits=SPLITS)
    if reason := operators.facts.why_no_triton:
        raise NotSupported(f"models cannot run on CUDA: {reason}", param="backend")
    try:
        from pageloom.backends.cuda.model import load  # noqa: PLC0415 - needs packages that are optional
    except ImportError as error:
        raise NotSupported(f"models on CUDA need more packages: {INSTALL} ({error})", param="backend") from error

    return await load.load_runner(source, description, settings, operators, on_progress)
