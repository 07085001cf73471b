"""The pre-norm decoder of the Llama family: norm, attention, add; norm, gated MLP, add."""

from __future__ import annotations

from collections.abc import Iterator

from pageloom.model.architectures.hyperparameters import Hyperparameters
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

EMBEDDING, OUTPUT_NORM, OUTPUT = "token_embd.weight", "output_norm.weight", "output.weight"


def output_matrix(weights: Weights, vocab_size: int, hidden_size: int) -> str:
    """The matrix of the logits: `output.weight`, or the embedding where the file ties the two."""
    return weights.matrix(OUTPUT, vocab_size, hidden_size) if OUTPUT in weights else EMBEDDING


def value_widths(sizes: Hyperparameters) -> dict[str, int]:
    """The width of every value that a layer of these sizes names."""
    return {
        "hidden": sizes.hidden_size,
        "normed": sizes.hidden_size,
        "qkv": sizes.query_width + 2 * sizes.kv_width,
        "attention": sizes.query_width,
        "attended": sizes.hidden_size,
        "gated": sizes.ffn_size,
        "selected": sizes.hidden_size,
        "selected_normed": sizes.hidden_size,
    }


def qkv_linear(sizes: Hyperparameters, weights: Weights, block: str, biases: tuple[str | None, ...] = ()) -> Linear:
    """The three input projections of a layer, packed as `PagedAttention` wants them."""
    return Linear(
        "normed",
        (
            weights.matrix(f"{block}.attn_q.weight", sizes.query_width, sizes.hidden_size),
            weights.matrix(f"{block}.attn_k.weight", sizes.kv_width, sizes.hidden_size),
            weights.matrix(f"{block}.attn_v.weight", sizes.kv_width, sizes.hidden_size),
        ),
        "qkv",
        biases,
    )


def pre_norm_decoder(
    sizes: Hyperparameters, weights: Weights, rope: Rope, *, qkv_bias: bool = False, qk_norm: bool = False
) -> Decoder:
    """Takes every tensor it uses out of `weights`; raises `BadModelFile` for one that is missing or misshapen."""
    vocab_size = weights.rows_of(EMBEDDING, sizes.hidden_size)
    ops: list[LayerOp] = [Embed(EMBEDDING, "hidden")]
    for layer in range(sizes.num_layers):
        ops += _layer(sizes, weights, rope, layer, qkv_bias=qkv_bias, qk_norm=qk_norm)
    ops += [
        SelectRows("hidden", "selected"),
        RmsNorm("selected", weights.vector(OUTPUT_NORM, sizes.hidden_size), "selected_normed", sizes.norm_epsilon),
        Logits("selected_normed", output_matrix(weights, vocab_size, sizes.hidden_size)),
    ]
    return Decoder(
        architecture=sizes.architecture,
        ops=tuple(ops),
        widths=value_widths(sizes),
        num_layers=sizes.num_layers,
        kv_num_heads=sizes.kv_num_heads,
        head_size=sizes.head_size,
        vocab_size=vocab_size,
        context_length=sizes.context_length,
    )


def _layer(
    sizes: Hyperparameters, weights: Weights, rope: Rope, layer: int, *, qkv_bias: bool, qk_norm: bool
) -> Iterator[LayerOp]:
    block, epsilon = f"blk.{layer}", sizes.norm_epsilon
    hidden, ffn = sizes.hidden_size, sizes.ffn_size
    biases: tuple[str, ...] = ()
    if qkv_bias:
        biases = (
            weights.vector(f"{block}.attn_q.bias", sizes.query_width),
            weights.vector(f"{block}.attn_k.bias", sizes.kv_width),
            weights.vector(f"{block}.attn_v.bias", sizes.kv_width),
        )
    yield RmsNorm("hidden", weights.vector(f"{block}.attn_norm.weight", hidden), "normed", epsilon)
    yield qkv_linear(sizes, weights, block, biases)
    yield PagedAttention(
        layer=layer,
        qkv="qkv",
        output="attention",
        num_heads=sizes.num_heads,
        kv_num_heads=sizes.kv_num_heads,
        head_size=sizes.head_size,
        scale=sizes.head_size**-0.5,
        rope=rope,
        q_norm=weights.vector(f"{block}.attn_q_norm.weight", sizes.head_size) if qk_norm else None,
        k_norm=weights.vector(f"{block}.attn_k_norm.weight", sizes.head_size) if qk_norm else None,
        norm_epsilon=epsilon,
    )
    attention_output = weights.matrix(f"{block}.attn_output.weight", hidden, sizes.query_width)
    yield Linear("attention", (attention_output,), "attended", residual="hidden")
    yield RmsNorm("attended", weights.vector(f"{block}.ffn_norm.weight", hidden), "normed", epsilon)
    yield GatedLinear(
        "normed",
        weights.matrix(f"{block}.ffn_gate.weight", ffn, hidden),
        weights.matrix(f"{block}.ffn_up.weight", ffn, hidden),
        "gated",
        "silu",
    )
    yield Linear("gated", (weights.matrix(f"{block}.ffn_down.weight", hidden, ffn),), "hidden", residual="attended")
