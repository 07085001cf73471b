"""From a GGUF file to a model that runs: its header, its weights on a device, its tokenizer and its engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pageloom.backends.webgpu import load as webgpu
from pageloom.engine.config import EngineConfig
from pageloom.engine.engine import Engine
from pageloom.engine.recovery import Recovery, RecoveryEvent
from pageloom.engine.runner_settings import RunnerSettings, context_length, settings_of
from pageloom.errors import InvalidArgument
from pageloom.home import Home, current_home
from pageloom.language_model import LanguageModel, ModelRunner
from pageloom.model.chat_encoding import chat_template_of
from pageloom.model.decoder import ModelDescription, load_model_description
from pageloom.model.gguf_tokenizer import GgufTokenizer, build_tokenizer
from pageloom.model.source import RangedSource
from pageloom.model.text_stream import TextStream
from pageloom.progress import OnProgress, Progress, ignore_progress

OnRecovery = Callable[[RecoveryEvent], None]
BACKENDS = ("webgpu", "cpu", "cuda")


async def load(
    model: Any,
    *,
    backend: str = "webgpu",
    settings: RunnerSettings | None = None,
    engine: EngineConfig | None = None,
    on_progress: OnProgress = ignore_progress,
    on_recovery: OnRecovery | None = None,
    home: Home | None = None,
) -> LanguageModel:
    """Load a GGUF model: a path or URL; in the tab also a File or Blob.

    `on_recovery` hears of a lost device, which is then replaced: the weights are read again from `model`, and requests
    go on. Without it a lost device ends them.

    `backend` is `webgpu`, or outside the tab `cpu` or `cuda`. Raises `BadModelFile` or `NotSupported` for the file,
    `NotSupported` where there is no WebGPU, no NVIDIA GPU, or where the compiled kernels for CPUs are not installed,
    and `CapacityExceeded` and `OutOfMemory` where the model or its KV cache does not fit.
    """
    if backend not in BACKENDS:
        known = ", ".join(BACKENDS)
        raise InvalidArgument(f"the backend {backend!r} runs no models; {known} do", param="backend")
    home = home or current_home()
    on_progress(Progress("header", 0, 1))
    source = await home.open_source(model)
    try:
        description = await load_model_description(source)
        settings = settings or RunnerSettings()
        runner = await _load_runner(backend, home, source, description, settings, on_progress)
    finally:
        if source is not model:
            source.close()

    async def load_again() -> ModelRunner:
        source = await home.open_source(model)
        try:
            same = settings_of(runner.limits, settings)
            return await _load_runner(backend, home, source, description, same, ignore_progress)
        finally:
            if source is not model:
                source.close()

    try:
        tokenizer = build_tokenizer(description.gguf, home.tokenizer_core)
        if tokenizer.vocab_size > description.decoder.vocab_size:
            raise InvalidArgument(
                f"the tokenizer has {tokenizer.vocab_size} tokens and the model {description.decoder.vocab_size}",
                param="model",
            )
        template, template_warnings = chat_template_of(tokenizer)
        running = Engine(
            runner,
            context_length=context_length(settings, description.decoder),
            stop_ids=tokenizer.stop_ids,
            detokenizer=lambda: _Detokenizer(tokenizer),
            config=engine,
            recovery=None if on_recovery is None else Recovery(load_again, on_recovery),
        )
    except BaseException:
        runner.close()
        raise
    warnings = (*description.warnings, *template_warnings)
    return LanguageModel(description, tokenizer, template, running, warnings)


async def _load_runner(
    backend: str,
    home: Home,
    source: RangedSource,
    description: ModelDescription,
    settings: RunnerSettings,
    on_progress: OnProgress,
) -> ModelRunner:
    if backend == "webgpu":
        device = await home.open_device(prefer=settings.prefer)
        return await webgpu.load_runner(device, source, description, settings, on_progress)
    if backend == "cuda":
        from pageloom.backends.cuda import model as cuda  # noqa: PLC0415 - no tab has it

        return await cuda.load_runner(source, description, settings, on_progress)
    from pageloom.backends.cpu import model as cpu  # noqa: PLC0415 - needs numpy, which a tab lacks

    return await cpu.load_runner(source, description, settings, on_progress)


class _Detokenizer:
    """Text of the tokens of one request."""

    def __init__(self, tokenizer: GgufTokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = TextStream()

    def feed(self, token_id: int) -> str:
        return self._stream.push(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        return self._stream.finish()
