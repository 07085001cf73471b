"""Qwen 2 and 2.5 (biases on query, key and value) and Qwen 3 (QK-norm instead)."""

from __future__ import annotations

from pageloom.model.architectures.hyperparameters import read_hyperparameters
from pageloom.model.architectures.pre_norm import pre_norm_decoder
from pageloom.model.architectures.rope import describe_rope
from pageloom.model.architectures.weights import Weights
from pageloom.model.layer_ops import Decoder
from pageloom.model.metadata import Metadata


async def describe_qwen2(metadata: Metadata, weights: Weights) -> Decoder:
    sizes = read_hyperparameters(metadata)
    rope = await describe_rope(metadata, sizes, weights, interleaved=False)
    return pre_norm_decoder(sizes, weights, rope, qkv_bias=True)


async def describe_qwen3(metadata: Metadata, weights: Weights) -> Decoder:
    sizes = read_hyperparameters(metadata)
    rope = await describe_rope(metadata, sizes, weights, interleaved=False)
    return pre_norm_decoder(sizes, weights, rope, qk_norm=True)
