"""The vocabulary of a GGUF file: the text and kind of every token, and which ids mean something to the engine."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from enum import IntEnum

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.metadata import Metadata

PREFIX = "tokenizer.ggml"
TURN_ENDS = frozenset(
    {
        "<|im_end|>",
        "<end_of_turn>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|return|>",
    }
)
"""Tokens that end a turn in the families that use them. They are control tokens however a file marks them."""
SEQUENCE_END = "</s>"
"""A control token in user text however a file marks it. Where it is marked as text (in Gemma it is an HTML tag) a
model may still write it, and it stops nothing."""


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte: itself where Latin-1 shows one, else the next one from U+0100 on."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


BYTES_BY_CHARACTER = _byte_alphabet()


def _byte_value(text: str) -> int:
    """The value of a byte token, `<0x0A>`."""
    match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)
    if match is None:
        raise BadModelFile(
            f"{text!r:.80} is marked as a byte token; such a token is spelt <0x00> to <0xFF>", param=f"{PREFIX}.tokens"
        )
    return int(match[1], 16)


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`texts[i]` and `kinds[i]` describe token i. `model` is `gpt2` (byte-level BPE) or `llama` (SentencePiece)."""

    model: str
    pre_tokenizer: str
    texts: list[str]
    kinds: array[int]
    scores: array[float] | None
    """SentencePiece only: of two possible merges the piece of higher score comes first."""
    merges: list[str]
    """Byte-level BPE only: "left right", in order of rank."""
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    stop_ids: frozenset[int]
    add_bos: bool
    add_space_prefix: bool
    """SentencePiece only: a space goes before text that begins the prompt or follows a special token."""

    def control_ids(self) -> dict[str, int]:
        """The tokens that no user text may become."""
        ids = self.ids_by_text(TokenKind.CONTROL, TokenKind.UNKNOWN)
        marked_as_text = self.ids_by_text(TokenKind.USER_DEFINED).get(SEQUENCE_END)
        return ids if marked_as_text is None else ids | {SEQUENCE_END: marked_as_text}

    def user_defined_ids(self) -> dict[str, int]:
        """The tokens that stand for text and are found in any text before it is merged."""
        ids = self.ids_by_text(TokenKind.USER_DEFINED)
        ids.pop(SEQUENCE_END, None)
        return ids

    def ids_by_text(self, *kinds: TokenKind) -> dict[str, int]:
        """The tokens of these kinds. Of tokens with the same text the first counts."""
        ids: dict[str, int] = {}
        for token_id, kind in enumerate(self.kinds):
            if kind in kinds:
                ids.setdefault(self.texts[token_id], token_id)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token in running text; b"" for a control or the unknown token."""
        text, kind = self.texts[token_id], self.kinds[token_id]
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN):
            return b""
        if kind == TokenKind.USER_DEFINED:
            return text.encode()
        if kind == TokenKind.BYTE:
            return bytes([_byte_value(text)])
        if self.model == "llama":
            return text.replace("▁", " ").encode()
        try:
            return bytes(BYTES_BY_CHARACTER[character] for character in text)
        except KeyError:  # a token outside the byte alphabet stands for its own text
            return text.encode()


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Raises `BadModelFile` where the parts do not fit together and `NotSupported` for another kind of tokenizer."""
    model = metadata.text(f"{PREFIX}.model")
    if model not in {"gpt2", "llama"}:
        raise NotSupported(
            f"the tokenizer model {model!r} is not supported; gpt2 and llama are", param=f"{PREFIX}.model"
        )
    sentencepiece = model == "llama"
    texts = metadata.texts(f"{PREFIX}.tokens")
    if not texts:
        raise BadModelFile("the vocabulary is empty", param=f"{PREFIX}.tokens")
    kinds = _kinds(metadata, len(texts))
    for token_id, text in enumerate(texts):
        if text in TURN_ENDS:
            kinds[token_id] = TokenKind.CONTROL
        elif kinds[token_id] == TokenKind.BYTE:
            _byte_value(text)
    pre_tokenizer = metadata.text(f"{PREFIX}.pre", "default")
    return Vocabulary(
        model=model,
        pre_tokenizer=pre_tokenizer,
        texts=texts,
        kinds=kinds,
        scores=_scores(metadata, len(texts)) if sentencepiece else None,
        merges=[] if sentencepiece else metadata.texts(f"{PREFIX}.merges"),
        bos_id=_special_id(metadata, "bos", len(texts)),
        eos_id=_special_id(metadata, "eos", len(texts)),
        unknown_id=_special_id(metadata, "unknown", len(texts)),
        stop_ids=_stop_ids(metadata, texts),
        add_bos=metadata.flag(f"{PREFIX}.add_bos_token", sentencepiece or pre_tokenizer in {"llama-bpe", "llama3"}),
        add_space_prefix=sentencepiece and metadata.flag(f"{PREFIX}.add_space_prefix", True),
    )


def _kinds(metadata: Metadata, count: int) -> array[int]:
    key = f"{PREFIX}.token_type"
    if key not in metadata:
        return array("i", [TokenKind.NORMAL]) * count
    values = metadata.numbers(key)
    known = set(TokenKind)
    if len(values) != count or not set(values) <= known:
        raise BadModelFile(
            f"{key} has {len(values)} entries for {count} tokens, of the kinds {sorted(set(values))[:8]}; "
            f"it needs one of {min(known)} to {max(known)} for each token",
            param=key,
        )
    return array("i", (int(value) for value in values))


def _scores(metadata: Metadata, count: int) -> array[float]:
    key = f"{PREFIX}.scores"
    scores = metadata.numbers(key)
    if len(scores) != count:
        raise BadModelFile(f"{key} has {len(scores)} entries for {count} tokens", param=key)
    return array("f", scores)


def _special_id(metadata: Metadata, role: str, count: int) -> int | None:
    key = f"{PREFIX}.{role}_token_id"
    return metadata.integer(key, maximum=count - 1) if key in metadata else None


def _stop_ids(metadata: Metadata, texts: list[str]) -> frozenset[int]:
    named = (_special_id(metadata, role, len(texts)) for role in ("eos", "eot", "eom"))
    known = (token_id for token_id, text in enumerate(texts) if text in TURN_ENDS)
    return frozenset(known).union(token_id for token_id in named if token_id is not None)
