"""Gemma 3 text models: norms around every block, QK-norm, and five layers of local attention to each global one.

Not in the file and so here: the embedding scale, the gain of 1 that GGUF has already added to every norm, and, unless
a newer file says otherwise, the period of the global layers and the rotary base of the local ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pageloom.model.architectures.hyperparameters import Hyperparameters, read_hyperparameters
from pageloom.model.architectures.pre_norm import EMBEDDING, OUTPUT_NORM, output_matrix, qkv_linear, value_widths
from pageloom.model.architectures.rope import SMALLEST_THETA, describe_rope, plain_frequencies
from pageloom.model.architectures.weights import Weights
from pageloom.model.layer_ops import (
    Decoder,
    Embed,
    GatedLinear,
    LayerOp,
    Linear,
    Logits,
    PagedAttention,
    RmsNorm,
    Rope,
    SelectRows,
)
from pageloom.model.metadata import Metadata

GLOBAL_LAYER_PERIOD = 6
LOCAL_ROPE_THETA = 1e4
_LAYERS_OF_27B = 62


async def describe_gemma3(metadata: Metadata, weights: Weights) -> Decoder:
    """Layer i is global where i + 1 is a multiple of the period. A local layer sees `sliding_window` keys, the query's
    own included, and ignores rope scaling, which is for the global layers."""
    sizes = read_hyperparameters(metadata)
    window = metadata.integer("gemma3.attention.sliding_window", minimum=1)
    period = metadata.integer("gemma3.attention.sliding_window_pattern", GLOBAL_LAYER_PERIOD, minimum=1)
    global_rope = await describe_rope(metadata, sizes, weights, interleaved=False, default_theta=1e6)
    local_theta = metadata.number("gemma3.rope.freq_base_swa", LOCAL_ROPE_THETA, minimum=SMALLEST_THETA)
    local_rope = Rope(global_rope.dim, False, tuple(plain_frequencies(local_theta, global_rope.dim)))
    softcap_key = "gemma3.final_logit_softcapping"
    softcap = metadata.number(softcap_key) if softcap_key in metadata else 0.0
    vocab_size = weights.rows_of(EMBEDDING, sizes.hidden_size)
    ops: list[LayerOp] = [Embed(EMBEDDING, "hidden", scale=math.sqrt(sizes.hidden_size))]
    for layer in range(sizes.num_layers):
        is_global = (layer + 1) % period == 0
        ops += _layer(sizes, weights, layer, global_rope if is_global else local_rope, -1 if is_global else window)
    output_norm = weights.vector(OUTPUT_NORM, sizes.hidden_size)
    ops += [
        SelectRows("hidden", "selected"),
        RmsNorm("selected", output_norm, "selected_normed", sizes.norm_epsilon),
        Logits("selected_normed", output_matrix(weights, vocab_size, sizes.hidden_size), softcap),
    ]
    return Decoder(
        architecture=sizes.architecture,
        ops=tuple(ops),
        widths=value_widths(sizes) | {"projected": sizes.hidden_size},
        num_layers=sizes.num_layers,
        kv_num_heads=sizes.kv_num_heads,
        head_size=sizes.head_size,
        vocab_size=vocab_size,
        context_length=sizes.context_length,
    )


def _attention_scale(sizes: Hyperparameters) -> float:
    """1 / sqrt(head size); the 27B model was trained with its hidden size over its number of heads instead."""
    width = sizes.hidden_size / sizes.num_heads if sizes.num_layers == _LAYERS_OF_27B else sizes.head_size
    return 1 / math.sqrt(width)


def _layer(sizes: Hyperparameters, weights: Weights, layer: int, rope: Rope, window: int) -> Iterator[LayerOp]:
    block, epsilon = f"blk.{layer}", sizes.norm_epsilon
    hidden, ffn = sizes.hidden_size, sizes.ffn_size

    def norm(source: str, name: str, output: str, residual: str | None = None) -> RmsNorm:
        return RmsNorm(source, weights.vector(f"{block}.{name}.weight", hidden), output, epsilon, residual)

    yield norm("hidden", "attn_norm", "normed")
    yield qkv_linear(sizes, weights, block)
    yield PagedAttention(
        layer=layer,
        qkv="qkv",
        output="attention",
        num_heads=sizes.num_heads,
        kv_num_heads=sizes.kv_num_heads,
        head_size=sizes.head_size,
        scale=_attention_scale(sizes),
        rope=rope,
        local_window_size=window,
        q_norm=weights.vector(f"{block}.attn_q_norm.weight", sizes.head_size),
        k_norm=weights.vector(f"{block}.attn_k_norm.weight", sizes.head_size),
        norm_epsilon=epsilon,
    )
    attention_output = weights.matrix(f"{block}.attn_output.weight", hidden, sizes.query_width)
    yield Linear("attention", (attention_output,), "projected")
    yield norm("projected", "post_attention_norm", "attended", residual="hidden")
    yield norm("attended", "ffn_norm", "normed")
    yield GatedLinear(
        "normed",
        weights.matrix(f"{block}.ffn_gate.weight", ffn, hidden),
        weights.matrix(f"{block}.ffn_up.weight", ffn, hidden),
        "gated",
        "gelu_tanh",
    )
    yield Linear("gated", (weights.matrix(f"{block}.ffn_down.weight", hidden, ffn),), "projected")
    yield norm("projected", "post_ffw_norm", "hidden", residual="attended")
