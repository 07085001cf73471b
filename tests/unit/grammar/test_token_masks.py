"""Masks have the tokens that fit, found without looking at each of them."""

from __future__ import annotations

import json
import random

import pytest

from pageloom.errors import NotSupported
from pageloom.grammar.automaton import Automaton, Positions
from pageloom.grammar.grammars import Grammars
from pageloom.grammar.json_grammar import ANY_OBJECT
from pageloom.grammar.json_schema import compile_schema
from pageloom.grammar.spellings import matching

WORDS = [
    "the",
    " quick",
    "brown fox",
    "日本語",
    "é",
    '"',
    '",',
    '"}',
    'x"}',
    '": "',
    "a" * 12,
    "\\n",
    "\\u0041bc",
    "\ud83d",
]
TOKENS = [word.encode(errors="replace") for word in WORDS] + [bytes([value]) for value in range(256)] + [b""]
STOP = len(TOKENS) - 1
MASK_BYTES = 36


def grammars(tokens: list[bytes] = TOKENS) -> Grammars:
    return Grammars(lambda token: tokens[token], len(tokens), end_ids=[len(tokens) - 1], mask_bytes=MASK_BYTES)


def tokens_of(mask: bytes) -> list[int]:
    assert len(mask) == MASK_BYTES
    bits = int.from_bytes(mask, "little")
    return [token for token in range(8 * MASK_BYTES) if bits >> token & 1]


@pytest.mark.parametrize(("least", "most"), [(0, 5), (3, 3), (9, 30), (20, 26), (14, None)])
def test_bounded_strings_have_the_tokens_that_leave_room_and_close_in_time(least: int, most: int | None) -> None:
    bound = {} if most is None else {"maxLength": most}
    automaton = compile_schema(
        {"type": "object", "additionalProperties": {"type": "string", "minLength": least, **bound}}
    )
    for seed in range(3):
        rng = random.Random(seed)
        constraint, text = grammars().constraint(automaton), b""
        positions, given = automaton.start, [TOKENS.index(bytes([byte])) for byte in b'{"k":']
        while not constraint.is_complete and len(text) < 80:
            allowed = tokens_of(constraint.allowed())
            if len(text) >= 5:
                assert allowed == [token for token in range(len(TOKENS)) if behind(automaton, positions, token)]
            token = given.pop(0) if given else rng.choice(allowed)
            text += TOKENS[token]
            constraint.advance(token)
            positions = behind(automaton, positions, token)
        if constraint.is_complete:
            for value in list(json.loads(text).values())[:1]:
                assert least <= len(value) <= (most or len(value))


def behind(automaton: Automaton, positions: Positions, token: int) -> Positions:
    """Byte by byte; nowhere for the token without bytes."""
    for byte in TOKENS[token]:
        positions = automaton.advance(positions, byte)
    return positions if TOKENS[token] else ()


def test_stop_tokens_are_allowed_only_where_the_text_is_whole() -> None:
    constraint = grammars().constraint(compile_schema({"type": "integer"}))
    assert STOP not in tokens_of(constraint.allowed())
    constraint.advance(TOKENS.index(b"1"))
    assert STOP in tokens_of(constraint.allowed())
    assert not constraint.is_complete
    for _ in range(14):
        constraint.advance(TOKENS.index(b"0"))
    assert tokens_of(constraint.allowed()) == [STOP]
    assert constraint.is_complete


def test_texts_at_the_same_place_share_one_mask() -> None:
    made = grammars()
    automaton = Automaton(ANY_OBJECT)
    first, second = made.constraint(automaton), made.constraint(automaton)
    for constraint, words in ((first, [b"{", b'"', b"the"]), (second, [b"{", b'"', b" quick", b"a" * 12])):
        for word in words:
            constraint.advance(TOKENS.index(word))
    assert first.allowed() is second.allowed()


def test_a_vocabulary_that_cannot_spell_the_answer_is_told() -> None:
    few = [token for token in TOKENS if b'"' not in token]
    constraint = grammars(few).constraint(compile_schema({"const": "a"}))
    with pytest.raises(NotSupported, match="vocabulary"):
        constraint.allowed()


def test_what_begins_like_a_refused_token_is_not_looked_at() -> None:
    words = sorted([b"a", b"ab", b"abc", b"b", *(b"c%d" % number for number in range(500)), b"\xff", b"\xff\xff"])
    steps: list[bytes] = []

    def step(path: bytes, byte: int) -> bytes | None:
        steps.append(path + bytes([byte]))
        return steps[-1] if byte in b"abc" and steps[-1] not in (b"c", b"abb") else None

    assert [words[index] for index in matching(words, b"", step)] == [b"a", b"ab", b"abc", b"b"]
    assert steps == [b"a", b"ab", b"abc", b"b", b"c", b"\xff"]


def test_a_stop_token_with_a_spelling_is_no_text() -> None:
    tokens = [*TOKENS[:-1], b"x"]
    constraint = grammars(tokens).constraint(compile_schema({"type": "string"}))
    for token in (TOKENS.index(b'"'), TOKENS.index(b"a")):
        constraint.advance(token)
        assert not constraint.allowed()[STOP // 8] >> STOP % 8 & 1
    constraint.advance(TOKENS.index(b'"'))
    assert constraint.allowed()[STOP // 8] >> STOP % 8 & 1
