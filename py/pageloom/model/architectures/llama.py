"""Llama and its kin that use the name (SmolLM2, Mistral, TinyLlama)."""

from __future__ import annotations

from pageloom.model.architectures.hyperparameters import read_hyperparameters
from pageloom.model.architectures.pre_norm import pre_norm_decoder
from pageloom.model.architectures.rope import describe_rope
from pageloom.model.architectures.weights import Weights
from pageloom.model.layer_ops import Decoder
from pageloom.model.metadata import Metadata


async def describe_llama(metadata: Metadata, weights: Weights) -> Decoder:
    """GGUF permutes the query and key rows of this architecture, and of no other, so that rope pairs interleave."""
    sizes = read_hyperparameters(metadata)
    rope = await describe_rope(metadata, sizes, weights, interleaved=True)
    return pre_norm_decoder(sizes, weights, rope)
