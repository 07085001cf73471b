"""From a GGUF file to the description of its decoder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.architectures.gemma3 import describe_gemma3
from pageloom.model.architectures.llama import describe_llama
from pageloom.model.architectures.qwen import describe_qwen2, describe_qwen3
from pageloom.model.architectures.weights import Weights
from pageloom.model.gguf import GgufFile, read_gguf
from pageloom.model.layer_ops import Decoder
from pageloom.model.metadata import Metadata
from pageloom.model.source import RangedSource

ARCHITECTURES: dict[str, Callable[[Metadata, Weights], Awaitable[Decoder]]] = {
    "gemma3": describe_gemma3,
    "llama": describe_llama,
    "qwen2": describe_qwen2,
    "qwen3": describe_qwen3,
}
"""Every architecture that the project runs, by its `general.architecture`."""

TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A file's table of contents, the decoder to run from it, and what a user should be told about it.

    `name` is what the file calls the model, or its architecture.
    """

    gguf: GgufFile
    name: str
    decoder: Decoder
    warnings: tuple[str, ...]


async def load_model_description(source: RangedSource) -> ModelDescription:
    """Reads the header of `source` and describes its decoder; weights stay where they are.

    Raises `BadModelFile` for a damaged file (see `read_gguf`), a missing or misshapen tensor or a wrong size, and
    `NotSupported` for an architecture or a feature of one that the project does not run.
    """
    gguf = await read_gguf(source)
    architecture = gguf.metadata.text("general.architecture")
    describe = ARCHITECTURES.get(architecture)
    if describe is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise NotSupported(f"the architecture {architecture!r} is not supported; supported are {known}", param="model")
    weights = Weights(gguf, source)
    decoder = await describe(gguf.metadata, weights)
    if TOKENS in gguf.metadata and (count := len(gguf.metadata.texts(TOKENS))) != decoder.vocab_size:
        raise BadModelFile(f"{count} tokens, but the embedding has {decoder.vocab_size} rows", param=TOKENS)
    name = gguf.metadata.text("general.name", architecture)
    return ModelDescription(gguf, name, decoder, tuple(weights.unused()))
