"""Decoder descriptions: what a file must hold, and what the description computes, before any device runs it."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.decoder import ModelDescription, load_model_description
from pageloom.model.layer_ops import Embed, Linear, Logits, PagedAttention, RmsNorm, Rope
from pageloom.model.source import BytesSource
from tests import gguf_bytes as g
from tests.reference_decoder import ReferenceDecoder
from tests.unit.model import tiny_models as tiny

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


async def describe(arch: str, tensors: tiny.Tables, **overrides: tuple[int, Any] | None) -> ModelDescription:
    return await load_model_description(BytesSource(tiny.file_of(tiny.metadata(arch, **overrides), tensors)))


async def logits_of(arch: str, tensors: tiny.Tables, **overrides: tuple[int, Any] | None) -> np.ndarray:
    description = await describe(arch, tensors, **overrides)
    tables: dict[str, Any] = {name: table.astype(np.float64) for name, table in tensors.items()}
    return ReferenceDecoder(description.decoder, tables).run(PROMPT, list(range(len(PROMPT))))


def attentions(description: ModelDescription) -> list[PagedAttention]:
    return [op for op in description.decoder.ops if isinstance(op, PagedAttention)]


async def rope_of(arch: str = "llama", tensors: tiny.Tables | None = None, **overrides: tuple[int, Any]) -> Rope:
    rope = attentions(await describe(arch, tensors or tiny.tables(), **overrides))[0].rope
    assert rope is not None
    return rope


async def test_sizes_are_those_of_the_file() -> None:
    decoder = (await describe("llama", tiny.tables())).decoder
    assert (decoder.num_layers, decoder.kv_num_heads, decoder.head_size) == (tiny.LAYERS, tiny.KV_HEADS, tiny.HEAD)
    assert (decoder.vocab_size, decoder.context_length) == (tiny.VOCAB, 128)
    assert decoder.widths["qkv"] == (tiny.HEADS + 2 * tiny.KV_HEADS) * tiny.HEAD
    assert [op.layer for op in attentions(await describe("llama", tiny.tables()))] == [0, 1]


async def test_every_value_is_made_before_it_is_read_and_none_in_place() -> None:
    gemma = tiny.with_gemma_norms(tiny.with_qk_norm(tiny.tables()), tiny.LAYERS)
    for description in (
        await describe("llama", tiny.tables()),
        await describe("gemma3", gemma, **{"attention.sliding_window": (g.U32, 4)}),
    ):
        made: set[str] = set()
        for op in description.decoder.ops:
            read = {value for field in ("input", "qkv", "residual") if (value := getattr(op, field, None))}
            assert read <= made
            assert getattr(op, "output", None) not in read
            made |= {op.output} if not isinstance(op, Logits) else set()
        assert made == description.decoder.widths.keys()


async def test_logits_use_the_embedding_where_there_is_no_output_matrix() -> None:
    tied = await describe("llama", tiny.tables())
    own = await describe("llama", tiny.tables() | {"output.weight": np.zeros((tiny.VOCAB, tiny.HIDDEN), np.float32)})
    assert [description.decoder.ops[-1].weight for description in (tied, own)] == ["token_embd.weight", "output.weight"]


@pytest.mark.parametrize("name", tiny.tables(layers=1))
async def test_a_missing_tensor_is_named(name: str) -> None:
    tensors = tiny.tables()
    del tensors[name]
    with pytest.raises(BadModelFile, match=f"the tensor {name} is missing"):
        await describe("llama", tensors)


@pytest.mark.parametrize("name", tiny.tables(layers=1))
async def test_a_misshapen_tensor_is_named(name: str) -> None:
    tensors = tiny.tables()
    tensors[name] = np.zeros((*tensors[name].shape[:-1], tensors[name].shape[-1] + 1), np.float32)
    with pytest.raises(BadModelFile, match=f"{name} has the shape") as caught:
        await describe("llama", tensors)
    assert caught.value.param == name


async def test_an_output_matrix_has_a_row_for_each_token() -> None:
    with pytest.raises(BadModelFile, match=r"output\.weight has the shape"):
        await describe("llama", tiny.tables() | {"output.weight": np.zeros((tiny.VOCAB - 1, tiny.HIDDEN), np.float32)})


async def test_the_vocabulary_has_a_token_for_each_row_of_the_embedding() -> None:
    for count in (tiny.VOCAB - 1, tiny.VOCAB + 1):
        tokens = g.key_value("tokenizer.ggml.tokens", g.ARRAY, (g.STRING, ["x"] * count))
        file = tiny.file_of([*tiny.metadata("llama"), tokens], tiny.tables())
        with pytest.raises(BadModelFile, match=f"{count} tokens, but the embedding has {tiny.VOCAB} rows"):
            await load_model_description(BytesSource(file))


async def test_the_name_is_the_files_or_its_architecture_and_must_be_text() -> None:
    async def described(*pairs: bytes) -> ModelDescription:
        file = tiny.file_of([*tiny.metadata("llama"), *pairs], tiny.tables())
        return await load_model_description(BytesSource(file))

    assert (await described()).name == "llama"
    assert (await described(g.key_value("general.name", g.STRING, "Tiny"))).name == "Tiny"
    with pytest.raises(BadModelFile, match=r"general\.name is of type int; it must be a string"):
        await described(g.key_value("general.name", g.U32, 7))


async def test_an_unused_tensor_is_a_warning_but_an_error_within_a_layer() -> None:
    extra = np.zeros(4, np.float32)
    assert (await describe("llama", tiny.tables() | {"extra.weight": extra})).warnings == (
        "the tensor extra.weight is not used",
    )
    with pytest.raises(NotSupported, match=r"blk\.1\.ffn_gate\.bias"):
        await describe("llama", tiny.tables() | {"blk.1.ffn_gate.bias": extra})


async def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(NotSupported, match="'mamba' is not supported; supported are gemma3, llama, qwen2, qwen3"):
        await describe("mamba", tiny.tables())


@pytest.mark.parametrize(
    ("key", "entry", "error"),
    [
        ("block_count", None, BadModelFile),
        ("block_count", (g.U32, 0), BadModelFile),
        ("block_count", (g.STRING, "2"), BadModelFile),
        ("block_count", (g.U32, 3), BadModelFile),
        ("embedding_length", (g.U32, 0), BadModelFile),
        ("embedding_length", (g.U64, 2**40), BadModelFile),
        ("embedding_length", (g.U32, 33), BadModelFile),
        ("feed_forward_length", (g.U32, 47), BadModelFile),
        ("attention.head_count", (g.U32, 0), BadModelFile),
        ("attention.head_count", (g.U32, 3), BadModelFile),
        ("attention.head_count_kv", (g.U32, 3), BadModelFile),
        ("attention.head_count_kv", (g.ARRAY, (g.U32, [2, 2])), BadModelFile),
        ("attention.key_length", (g.U32, 16), BadModelFile),
        ("attention.value_length", (g.U32, 16), NotSupported),
        ("attention.layer_norm_rms_epsilon", (g.F32, math.nan), BadModelFile),
        ("attention.layer_norm_rms_epsilon", (g.F32, -1e-5), BadModelFile),
        ("context_length", (g.U32, 0), BadModelFile),
        ("expert_count", (g.U32, 8), NotSupported),
        ("rope.dimension_count", (g.U32, 7), BadModelFile),
        ("rope.dimension_count", (g.U32, 10), BadModelFile),
        ("rope.freq_base", (g.F32, math.inf), BadModelFile),
        ("rope.freq_base", (g.F32, 1.0), BadModelFile),
        ("rope.freq_base", (g.F64, 5e-324), BadModelFile),
        ("rope.scaling.type", (g.STRING, "mystery"), NotSupported),
    ],
)
async def test_a_wrong_number_is_refused(key: str, entry: tuple[int, Any] | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        await describe("llama", tiny.tables(), **{key: entry})


@pytest.mark.parametrize("number", [0.0, -1.0, 5e-324, 1e-30, 1.0, 1e30, 1.7e308, math.inf, math.nan])
@pytest.mark.parametrize("scaling", ["linear", "yarn"])
@pytest.mark.parametrize(
    "key", ["freq_base", *(f"scaling.{name}" for name in ("factor", "yarn_beta_fast", "yarn_beta_slow", "attn_factor"))]
)
async def test_any_number_in_rope_metadata_is_refused_or_gives_finite_frequencies(
    key: str, scaling: str, number: float
) -> None:
    scaled = {
        "rope.scaling.type": (g.STRING, scaling),
        "rope.scaling.factor": (g.F32, 4.0),
        "rope.scaling.original_context_length": (g.U32, 64),
    }
    with contextlib.suppress(BadModelFile):
        rope = await rope_of(**scaled | {f"rope.{key}": (g.F64, number)})
        assert all(map(math.isfinite, (*rope.inverse_frequencies, rope.attention_factor)))


async def test_rope_pairs_follow_the_architecture() -> None:
    """The same model, its rows as each architecture stores them, has the same logits; the rows of the other do not."""
    halves = tiny.tables()
    qwen = await logits_of("qwen2", tiny.with_qkv_bias(halves))
    llama = await logits_of("llama", tiny.interleaved(halves))
    wrong = await logits_of("llama", halves)
    np.testing.assert_allclose(llama, qwen, rtol=0, atol=1e-9)
    assert np.abs(wrong - qwen).max() > 0.01


async def test_qwen_2_adds_its_biases_and_qwen_3_norms_queries_and_keys() -> None:
    plain = await logits_of("qwen2", tiny.with_qkv_bias(tiny.tables()))
    biased = await logits_of("qwen2", tiny.with_qkv_bias(tiny.tables(), 0.5))
    normed = await logits_of("qwen3", tiny.with_qk_norm(tiny.tables()))
    assert np.abs(biased - plain).max() > 0.01
    assert np.abs(normed - plain).max() > 0.01
    for arch in ("qwen2", "qwen3"):
        with pytest.raises(BadModelFile, match=r"attn_q(_norm)?\.(bias|weight) is missing"):
            await describe(arch, tiny.tables())


async def test_qwen_3_heads_may_be_wider_than_the_hidden_size_says() -> None:
    tensors = tiny.with_qk_norm(tiny.tables(head=16), head=16)
    keys = {"attention.key_length": (g.U32, 16), "attention.value_length": (g.U32, 16)}
    description = await describe("qwen3", tensors, **keys)
    assert description.decoder.head_size == 16
    assert attentions(description)[0].scale == pytest.approx(0.25)


async def test_gemma_3_layers_are_local_but_for_every_sixth() -> None:
    layers = 12
    tensors = tiny.with_gemma_norms(tiny.with_qk_norm(tiny.tables(layers), layers), layers)
    keys = {
        "block_count": (g.U32, layers),
        "attention.sliding_window": (g.U32, 4),
        "rope.freq_base": (g.F32, 1e6),
        "rope.scaling.type": (g.STRING, "linear"),
        "rope.scaling.factor": (g.F32, 8.0),
    }
    description = await describe("gemma3", tensors, **keys)
    ops = attentions(description)
    assert [op.local_window_size for op in ops] == ([4] * 5 + [-1]) * 2
    second_pair = [op.rope.inverse_frequencies[1] for op in ops if op.rope]
    assert second_pair == pytest.approx(([1e4**-0.25] * 5 + [1e6**-0.25 / 8]) * 2)
    assert not any(op.rope.interleaved for op in ops if op.rope)
    assert [op.scale for op in description.decoder.ops if isinstance(op, Embed)] == [math.sqrt(tiny.HIDDEN)]
    assert sum(isinstance(op, RmsNorm) for op in description.decoder.ops) == 4 * layers + 1
    assert [op.residual for op in description.decoder.ops if isinstance(op, Linear)] == [None] * 3 * layers


async def test_plain_rope_is_powers_of_theta() -> None:
    rope = await rope_of(**{"rope.freq_base": (g.F32, 5000.0)})
    np.testing.assert_allclose(
        rope.inverse_frequencies, 5000.0 ** -(np.arange(0, tiny.HEAD, 2) / tiny.HEAD), rtol=1e-12
    )


async def test_part_of_a_head_may_turn() -> None:
    rope = await rope_of(**{"rope.dimension_count": (g.U32, 4)})
    np.testing.assert_allclose(rope.inverse_frequencies, [1, 1e4**-0.5], rtol=1e-12)


async def test_linear_scaling_divides_every_frequency() -> None:
    scaled = await rope_of(**{"rope.scaling.type": (g.STRING, "linear"), "rope.scaling.factor": (g.F32, 4.0)})
    np.testing.assert_allclose(scaled.inverse_frequencies, np.array((await rope_of()).inverse_frequencies) / 4)


async def test_llama_3_factors_divide_each_frequency_by_its_own() -> None:
    factors = np.array([1, 1, 2.5, 8], np.float32)
    rope = await rope_of(tensors=tiny.tables() | {"rope_freqs.weight": factors})
    np.testing.assert_allclose(rope.inverse_frequencies, np.array((await rope_of()).inverse_frequencies) / factors)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
async def test_llama_3_factors_must_be_positive(factor: float) -> None:
    with pytest.raises(BadModelFile, match=r"rope_freqs\.weight"):
        await rope_of(tensors=tiny.tables() | {"rope_freqs.weight": np.array([1, 1, 1, factor], np.float32)})


async def test_yarn_equals_the_published_formula() -> None:
    """gamma(r) of section 3.2 with r = L / wavelength, at the pair indices where r is 32 and 1, and section 3.4's
    temperature."""
    dim, theta, factor, original = 64, 1e4, 4.0, 2048
    tensors = tiny.with_qk_norm(tiny.tables(head=dim), head=dim)
    rope = await rope_of(
        "qwen3",
        tensors,
        **{
            "attention.key_length": (g.U32, dim),
            "attention.value_length": (g.U32, dim),
            "rope.freq_base": (g.F32, theta),
            "rope.scaling.type": (g.STRING, "yarn"),
            "rope.scaling.factor": (g.F32, factor),
            "rope.scaling.original_context_length": (g.U32, original),
        },
    )
    pair = np.arange(dim // 2)
    plain = theta ** (-2.0 * pair / dim)
    rotations = original * theta ** (-2.0 * np.linspace(0, dim / 2, 640_001) / dim) / (2 * np.pi)
    places = np.linspace(0, dim / 2, 640_001)
    low = np.floor(places[np.argmin(abs(rotations - 32))])
    high = np.ceil(places[np.argmin(abs(rotations - 1))])
    interpolated = np.clip((pair - low) / (high - low), 0, 1)
    np.testing.assert_allclose(
        rope.inverse_frequencies, plain / factor * interpolated + plain * (1 - interpolated), rtol=1e-12
    )
    assert rope.attention_factor == pytest.approx(0.1 * math.log(4) + 1)


async def test_a_window_of_w_shows_w_keys_in_the_reference() -> None:
    """The convention that the golden answers below rely on, on one-hot values: query i sees keys i - 3 to i."""
    op = PagedAttention(0, "qkv", "out", 1, 1, 8, 1.0, None, local_window_size=4)
    reference = ReferenceDecoder((await describe("llama", tiny.tables())).decoder, {})
    reference.values["qkv"] = np.concatenate([np.zeros((8, 16)), np.eye(8)], axis=1)
    weights = reference._attention(op)
    for query in range(8):
        seen = range(max(0, query - 3), query + 1)
        assert [key for key in range(8) if weights[query, key] > 0] == list(seen)
