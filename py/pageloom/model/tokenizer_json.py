"""A GGUF vocabulary as a `tokenizer.json`, the format of Hugging Face's tokenizer libraries.

It holds no control and no user-defined token (but the unknown one, where some byte has no token): those are split off
before (see `gguf_tokenizer`), so no text that a library gets can become one, and every library does the same.
"""

from __future__ import annotations

import json
from array import array
from typing import Any

from pageloom.errors import NotSupported
from pageloom.model.vocabulary import TokenKind, Vocabulary

# \s differs between regex engines (U+0085, U+FEFF), so the property is spelt out; so are the cases of contractions.
_SPACE = r"\p{White_Space}"
_GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+"
    r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+"
)


def _llama3(digits: str) -> str:
    return (
        r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + "|"
        r" ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+"
        r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+"
    )


_SPLITS = {
    "default": (_GPT2,),
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_llama3(r"\p{N}{1,3}"),),
    "llama3": (_llama3(r"\p{N}{1,3}"),),
    "qwen2": (_llama3(r"\p{N}"),),
}
"""The regular expressions that cut text into words, one after the other, by `tokenizer.ggml.pre`."""

_WHOLE_WORDS_FIRST = {"llama-bpe", "llama3"}
_NFC = {"qwen2"}


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """Raises `NotSupported` for a pre-tokenizer that is not known."""
    if vocabulary.model == "llama":
        return _document(_sentencepiece(vocabulary), normalizer=_replace(" ", "▁"), pre_tokenizer=None)
    name = vocabulary.pre_tokenizer
    if name not in _SPLITS:
        raise NotSupported(
            f"the pre-tokenizer {name!r} is not supported; supported are {', '.join(_SPLITS)}",
            param="tokenizer.ggml.pre",
        )
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in _SPLITS[name]
    ]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
    return _document(
        _byte_level(vocabulary, ignore_merges=name in _WHOLE_WORDS_FIRST),
        normalizer={"type": "NFC"} if name in _NFC else None,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
    )


def _document(model: dict[str, Any], *, normalizer: dict[str, Any] | None, pre_tokenizer: dict[str, Any] | None) -> str:
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def _bpe(vocab: dict[str, int], merges: list[Any], **options: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
    } | options


def _byte_level(vocabulary: Vocabulary, *, ignore_merges: bool) -> dict[str, Any]:
    vocab = vocabulary.ids_by_text(TokenKind.NORMAL, TokenKind.UNUSED)
    return _bpe(vocab, vocabulary.merges, ignore_merges=ignore_merges)


def _sentencepiece(vocabulary: Vocabulary) -> dict[str, Any]:
    """SentencePiece's BPE joins the adjacent pair whose joined piece has the highest score. As ranked merges: every
    way to cut a piece into two pieces, by falling score of the whole."""
    pieces = vocabulary.ids_by_text(TokenKind.NORMAL)
    assert vocabulary.scores is not None
    merges = _ranked_merges(pieces, vocabulary.scores)
    byte_tokens = vocabulary.ids_by_text(TokenKind.BYTE)
    vocab = pieces | byte_tokens
    unknown = None
    if len(byte_tokens) < 256 and vocabulary.unknown_id is not None:
        unknown = vocabulary.texts[vocabulary.unknown_id]
        vocab[unknown] = vocabulary.unknown_id
    return _bpe(vocab, merges, unk_token=unknown, byte_fallback=True, fuse_unk=True)


def _ranked_merges(pieces: dict[str, int], scores: array[float]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for piece in sorted(pieces, key=lambda piece: scores[pieces[piece]], reverse=True):
        for cut in range(1, len(piece)):
            left = piece[:cut]
            if left in pieces and (right := piece[cut:]) in pieces:
                merges.append((left, right))
    return merges
