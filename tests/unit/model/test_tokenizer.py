"""Tokenizers against another implementation's ids, and against vocabularies small enough to reason about."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageloom.errors import BadModelFile, InvalidArgument, NotSupported
from pageloom.model.gguf import GgufFile
from pageloom.model.gguf_tokenizer import GgufTokenizer, build_tokenizer
from pageloom.model.metadata import Metadata
from pageloom.model.native_core import NativeTokenizerCore
from pageloom.model.tokenizer import TokenizerCore
from pageloom.model.vocabulary import BYTES_BY_CHARACTER, TokenKind
from tests.unit.model.conftest import golden

NORMAL, CONTROL, USER_DEFINED, BYTE = TokenKind.NORMAL, TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.BYTE


@pytest.fixture(scope="module")
def tokenizer(model_gguf: GgufFile) -> GgufTokenizer:
    return build_tokenizer(model_gguf, NativeTokenizerCore)


def small(
    model: str,
    tokens: list[tuple[str, TokenKind]],
    *,
    core: Callable[[str], TokenizerCore] = NativeTokenizerCore,
    **more: Any,
) -> GgufTokenizer:
    """A tokenizer of a vocabulary given in full; `more` are further `tokenizer.ggml` keys."""
    values: dict[str, Any] = {
        "model": model,
        "tokens": [text for text, _ in tokens],
        "token_type": array("i", [kind for _, kind in tokens]),
        **more,
    }
    metadata = Metadata({f"tokenizer.ggml.{key}": value for key, value in values.items()})
    return build_tokenizer(GgufFile(3, 32, metadata, {}), core)


def byte_level(*words: str, merges: list[str], special: tuple[tuple[str, TokenKind], ...] = (), **more: Any):
    tokens = [(character, NORMAL) for character in BYTES_BY_CHARACTER]
    return small("gpt2", [*tokens, *((word, NORMAL) for word in words), *special], merges=merges, **more)


def test_ids_of_user_text_equal_the_golden_ones(family: str, tokenizer: GgufTokenizer) -> None:
    for row in golden("tokenizer")[family]["rows"]:
        assert tokenizer.encode(row["text"]) == row["ids"], row["text"]


def test_ids_of_template_text_equal_the_golden_ones(family: str, tokenizer: GgufTokenizer) -> None:
    for row in golden("tokenizer")[family]["rows"]:
        assert tokenizer.encode(row["text"], allow_special=True) == row["ids_special"], row["text"]


def test_bytes_of_user_text_join_to_the_text(family: str, tokenizer: GgufTokenizer) -> None:
    for row in golden("tokenizer")[family]["rows"]:
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(row["text"]))) == row["text"].encode()


def test_facts_equal_the_golden_ones(family: str, tokenizer: GgufTokenizer) -> None:
    facts = golden("tokenizer")[family]
    assert tokenizer.vocab_size == facts["n_vocab"]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (facts["bos"], facts["eos"])
    assert tokenizer.add_bos == facts["add_bos_default"]
    assert facts["eos"] in tokenizer.stop_ids


def test_ends_of_turns_stop_besides_the_end_of_sequence(family: str, tokenizer: GgufTokenizer) -> None:
    ends = {"smollm2": {"<|im_end|>", "<|endoftext|>"}, "gemma3": {"<eos>", "<end_of_turn>"}}
    assert {tokenizer.token_text(token_id) for token_id in tokenizer.stop_ids} == ends[family]


def test_no_user_text_becomes_a_control_token(tokenizer: GgufTokenizer) -> None:
    specials = sorted(tokenizer.control_tokens.texts)[:40]
    control_ids = {tokenizer.control_id(text) for text in tokenizer.control_tokens.texts}
    for first in specials:
        for text in (first, f"a{first}b", f" {first}\n", first + specials[0], first[:-1] + first):
            assert control_ids.isdisjoint(tokenizer.encode(text))
            assert tokenizer.control_id(first) in tokenizer.encode(text, allow_special=True)


def test_control_tokens_have_no_bytes_and_byte_tokens_one(family: str, tokenizer: GgufTokenizer) -> None:
    assert all(tokenizer.token_bytes(token_id) == b"" for token_id in tokenizer.stop_ids)
    if family == "gemma3":
        assert tokenizer.token_bytes(238 + 0xFF) == b"\xff"


def test_refuses_an_id_outside_the_vocabulary(tokenizer: GgufTokenizer) -> None:
    for token_id in (-1, tokenizer.vocab_size):
        with pytest.raises(InvalidArgument, match="outside the vocabulary"):
            tokenizer.token_bytes(token_id)


def test_every_byte_has_one_character_of_the_byte_alphabet() -> None:
    assert sorted(BYTES_BY_CHARACTER.values()) == list(range(256))
    assert BYTES_BY_CHARACTER["Ġ"] == 0x20
    assert BYTES_BY_CHARACTER["Ċ"] == 0x0A


SPECIAL = (("<|a|>", CONTROL), ("<|a|>b", CONTROL), ("<br>", USER_DEFINED), ("[x]", USER_DEFINED))


def test_a_word_next_to_a_special_token_is_encoded_as_if_alone() -> None:
    tokenizer = byte_level("ab", "Ġab", merges=["a b", "Ġ ab"], special=SPECIAL)
    special = tokenizer.control_id("<|a|>")
    for text in ("ab", " ab", "\n", " ", "é", "1", "ab ab"):
        alone = tokenizer.encode(text)
        assert tokenizer.encode(f"<|a|>{text}<|a|>", allow_special=True) == [special, *alone, special]


def test_the_longest_special_token_wins() -> None:
    tokenizer = byte_level(merges=[], special=SPECIAL)
    assert tokenizer.encode("<|a|>b<|a|>", allow_special=True) == [
        tokenizer.control_id("<|a|>b"),
        tokenizer.control_id("<|a|>"),
    ]


def test_user_defined_tokens_are_found_in_any_text() -> None:
    tokenizer = byte_level(merges=[], special=SPECIAL)
    ids = tokenizer.encode("<br>[x]")
    assert [tokenizer.token_text(token_id) for token_id in ids] == ["<br>", "[x]"]
    assert tokenizer.encode("<br>[x]", allow_special=True) == ids


def test_an_end_of_turn_that_a_file_marks_as_text_is_still_a_control_token() -> None:
    tokenizer = byte_level(merges=[], special=(("<|im_end|>", USER_DEFINED),))
    assert tokenizer.stop_ids == {256}
    assert 256 not in tokenizer.encode("<|im_end|>")


def test_llama_3_takes_a_whole_word_before_it_merges() -> None:
    """`abc` is in the vocabulary but no sequence of merges makes it."""
    words, merges = ("ab", "bc", "abc"), ["a b", "b c"]
    whole = byte_level(*words, merges=merges, pre="llama-bpe")
    merged = byte_level(*words, merges=merges, pre="gpt-2")
    assert [whole.token_text(token_id) for token_id in whole.encode("abc")] == ["abc"]
    assert [merged.token_text(token_id) for token_id in merged.encode("abc")] == ["ab", "c"]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "don't 123  x", ["don", "'t", "Ġ123", "Ġ", "Ġx"]),
        ("smollm", "don't 123  x", ["don", "'t", "Ġ", "1", "2", "3", "Ġ", "Ġx"]),
        ("llama-bpe", "DON'T 1234\n\n x", ["DON", "'T", "Ġ", "123", "4", "ĊĊ", "Ġx"]),
        ("qwen2", "DON'T 12\n\n x", ["DON", "'T", "Ġ", "1", "2", "ĊĊ", "Ġx"]),
    ],
)
def test_text_is_cut_into_words_as_each_family_does(pre: str, text: str, pieces: list[str]) -> None:
    """Every merge is possible, so what is not merged was cut."""
    merges = [f"{left} {right}" for piece in pieces for left, right in steps(piece)]
    across = ["n '", "t Ġ", "3 Ġ", "Ġ 1", "3 4", "1 2", "Ġ Ġ", "Ċ Ġ", "T Ġ"]
    words = {merge.replace(" ", "") for merge in merges + across}
    tokenizer = byte_level(*sorted(words), merges=list(dict.fromkeys(merges + across)), pre=pre)
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.encode(text)] == pieces


def steps(piece: str) -> list[tuple[str, str]]:
    return [(piece[:end], piece[end]) for end in range(1, len(piece))]


def test_an_unknown_pre_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="'mystery'"):
        byte_level(merges=[], pre="mystery")


def test_an_unknown_tokenizer_model_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="'bert'"):
        small("bert", [("a", NORMAL)])


@pytest.mark.parametrize(
    "broken",
    [
        {"merges": ["a zz"]},
        {"merges": ["nothing"]},
        {"merges": [], "token_type": array("i", [1])},
        {"merges": [], "token_type": array("i", [9] * 256)},
        {"merges": [], "bos_token_id": 256},
        {"merges": [], "add_bos_token": "yes"},
        {"merges": array("i", [1])},
    ],
)
def test_a_damaged_vocabulary_is_a_bad_model_file(broken: dict[str, Any]) -> None:
    with pytest.raises(BadModelFile):
        byte_level(**broken)


SCORES = {"▁": -9.0, "a": -8.0, "b": -7.0, "c": -6.0, "ab": -1.0, "bc": -0.5, "▁a": -2.0, "▁ab": -3.0, "cc": -0.1}


def sentencepiece(**more: Any) -> GgufTokenizer:
    tokens = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [(piece, NORMAL) for piece in SCORES] + [("<s>", CONTROL), ("<hr>", USER_DEFINED)]
    scores = array("f", [0.0] * 256 + list(SCORES.values()) + [0.0, 0.0])
    return small("llama", tokens, scores=scores, **{"add_space_prefix": False, **more})


def sentencepiece_by_definition(text: str) -> list[str]:
    """Joins the adjacent pair whose joined piece scores highest, leftmost first, until none is a piece."""
    pieces = list(text.replace(" ", "▁"))
    while True:
        pairs = [(SCORES[a + b], -i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in SCORES]
        if not pairs:
            return pieces
        place = -max(pairs)[1]
        pieces[place : place + 2] = ["".join(pieces[place : place + 2])]


@settings(derandomize=True, deadline=None)
@given(st.text("abc ", max_size=24))
def test_ranked_merges_do_what_sentencepiece_scores_say(text: str) -> None:
    tokenizer = sentencepiece()
    assert [tokenizer.token_text(token_id) for token_id in tokenizer.encode(text)] == sentencepiece_by_definition(text)


def test_characters_outside_the_pieces_become_byte_tokens() -> None:
    assert sentencepiece().encode("é") == list("é".encode())


def test_a_space_goes_before_text_that_begins_or_follows_a_special_token() -> None:
    tokenizer = sentencepiece(add_space_prefix=True)
    ids = tokenizer.encode("c<s>c<hr>cc", allow_special=True)
    assert [tokenizer.token_text(token_id) for token_id in ids] == ["▁", "c", "<s>", "▁", "c", "<hr>", "▁", "cc"]


def test_a_space_after_a_special_token_is_kept() -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode("<s> ab", allow_special=True)
    assert [tokenizer.token_text(token_id) for token_id in ids] == ["<s>", "▁ab"]


@pytest.mark.parametrize("make", [sentencepiece, lambda **more: byte_level(merges=[], special=SPECIAL, **more)])
def test_the_library_gets_no_special_token(make: Callable[..., GgufTokenizer]) -> None:
    documents: list[str] = []

    def core(document: str) -> NativeTokenizerCore:
        documents.append(document)
        return NativeTokenizerCore(document)

    make(core=core)
    (document,) = map(json.loads, documents)
    assert document["added_tokens"] == []
    assert {"<s>", "<hr>", "<|a|>", "<|a|>b", "<br>", "[x]"}.isdisjoint(document["model"]["vocab"])


@pytest.mark.parametrize("text", ["", "a", "<0x>", "<0x1>", "<0x100>", "<0xGG>", " <0x00>", "<0x00>\n"])
def test_a_byte_token_that_names_no_byte_is_a_bad_model_file(text: str) -> None:
    with pytest.raises(BadModelFile, match="marked as a byte token"):
        small("gpt2", [("a", NORMAL), (text, TokenKind.BYTE)], merges=[])


def test_a_document_that_the_library_refuses_is_a_bad_model_file() -> None:
    with pytest.raises(BadModelFile, match="not consistent"):
        NativeTokenizerCore("{}")
