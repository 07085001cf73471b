"""Small decoders with random weights, as GGUF files and as tables for the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests import gguf_bytes as g

HIDDEN, FFN, HEADS, KV_HEADS, HEAD, VOCAB, LAYERS = 32, 48, 4, 2, 8, 40, 2

Tables = dict[str, npt.NDArray[np.float32]]


def metadata(arch: str, **overrides: tuple[int, Any] | None) -> list[bytes]:
    """The keys of a tiny model; an override is (kind, value), or None to leave a key out."""
    keys: dict[str, tuple[int, Any] | None] = {
        "block_count": (g.U32, LAYERS),
        "context_length": (g.U32, 128),
        "embedding_length": (g.U32, HIDDEN),
        "feed_forward_length": (g.U32, FFN),
        "attention.head_count": (g.U32, HEADS),
        "attention.head_count_kv": (g.U32, KV_HEADS),
        "attention.layer_norm_rms_epsilon": (g.F32, 1e-5),
    }
    keys |= overrides
    pairs = [g.key_value("general.architecture", g.STRING, arch)]
    return pairs + [g.key_value(f"{arch}.{key}", *entry) for key, entry in keys.items() if entry is not None]


def tables(layers: int = LAYERS, head: int = HEAD, seed: int = 0) -> Tables:
    """The tensors that every architecture has."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return (rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    def gain(length: int) -> npt.NDArray[np.float32]:
        return rng.uniform(0.5, 1.5, length).astype(np.float32)

    tensors = {"token_embd.weight": matrix(VOCAB, HIDDEN), "output_norm.weight": gain(HIDDEN)}
    for layer in range(layers):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": gain(HIDDEN),
            f"blk.{layer}.attn_q.weight": matrix(HEADS * head, HIDDEN),
            f"blk.{layer}.attn_k.weight": matrix(KV_HEADS * head, HIDDEN),
            f"blk.{layer}.attn_v.weight": matrix(KV_HEADS * head, HIDDEN),
            f"blk.{layer}.attn_output.weight": matrix(HIDDEN, HEADS * head),
            f"blk.{layer}.ffn_norm.weight": gain(HIDDEN),
            f"blk.{layer}.ffn_gate.weight": matrix(FFN, HIDDEN),
            f"blk.{layer}.ffn_up.weight": matrix(FFN, HIDDEN),
            f"blk.{layer}.ffn_down.weight": matrix(HIDDEN, FFN),
        }
    return tensors


def with_qk_norm(tensors: Tables, layers: int = LAYERS, head: int = HEAD) -> Tables:
    gains = np.linspace(0.5, 1.5, head, dtype=np.float32)
    names = [f"blk.{layer}.attn_{part}_norm.weight" for layer in range(layers) for part in "qk"]
    return tensors | dict.fromkeys(names, gains)


def with_qkv_bias(tensors: Tables, value: float = 0.0) -> Tables:
    widths = {"q": HEADS * HEAD, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD}
    biases = {
        f"blk.{layer}.attn_{part}.bias": np.full(width, value, np.float32)
        for layer in range(LAYERS)
        for part, width in widths.items()
    }
    return tensors | biases


def with_gemma_norms(tensors: Tables, layers: int) -> Tables:
    names = [
        f"blk.{layer}.{name}.weight" for layer in range(layers) for name in ("post_attention_norm", "post_ffw_norm")
    ]
    return tensors | dict.fromkeys(names, np.linspace(0.8, 1.2, HIDDEN, dtype=np.float32))


def interleaved(tensors: Tables) -> Tables:
    """The same model with query and key rows reordered from (i, i + half) pairs to (2i, 2i + 1) ones."""
    order = np.arange(HEAD).reshape(2, HEAD // 2).T.reshape(-1)
    return {
        name: table.reshape(-1, HEAD, HIDDEN)[:, order].reshape(table.shape)
        if name.endswith(("attn_q.weight", "attn_k.weight"))
        else table
        for name, table in tensors.items()
    }


def file_of(pairs: list[bytes], tensors: Tables) -> bytes:
    return g.model(pairs, {name: (table.shape, 0, table.tobytes()) for name, table in tensors.items()})
