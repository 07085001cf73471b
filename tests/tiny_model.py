"""A tiny Llama-family GGUF file with random weights: every part of a real one, in a few hundred kilobytes.

Its layers mix quantised formats, its vocabulary is byte-level BPE with ChatML control tokens, its embeddings are tied.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 96, 2, 4, 2, 512
HEAD_SIZE = HIDDEN // HEADS
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary() -> list[str]:
    """Control tokens, the 256 bytes in GPT-2's alphabet, then what the merges make."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    alphabet = [chr(byte) for byte in shown] + [chr(0x100 + index) for index in range(len(hidden))]
    return CONTROL + alphabet + [merge.replace(" ", "") for merge in MERGES]


def write_tiny_model(path: Path, *, seed: int = 0) -> Path:
    """Write the file; the same seed writes the same bytes."""
    random = np.random.default_rng(seed)
    tokens = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny test model")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)

    def matrix(name: str, rows: int, columns: int, kind: Type, scale: float) -> None:
        values = (random.standard_normal((rows, columns)) * scale).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def gain(name: str) -> None:
        writer.add_tensor(name, (1 + 0.1 * random.standard_normal(HIDDEN)).astype(np.float32))

    matrix("token_embd.weight", len(tokens), HIDDEN, Type.Q8_0, 1.0)
    gain("output_norm.weight")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        gain(block + "attn_norm.weight")
        gain(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", HIDDEN, HIDDEN, Type.Q4_1, 0.3)
        matrix(block + "attn_k.weight", KV_HEADS * HEAD_SIZE, HIDDEN, Type.Q4_0, 0.3)
        matrix(block + "attn_v.weight", KV_HEADS * HEAD_SIZE, HIDDEN, Type.Q8_0, 0.3)
        matrix(block + "attn_output.weight", HIDDEN, HIDDEN, Type.Q5_0, 0.3)
        matrix(block + "ffn_gate.weight", FFN, HIDDEN, Type.Q5_1, 0.2)
        matrix(block + "ffn_up.weight", FFN, HIDDEN, Type.Q4_1, 0.2)
        matrix(block + "ffn_down.weight", HIDDEN, FFN, Type.F16, 0.2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
