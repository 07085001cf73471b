"""Schemas made to cost time or to fall between types: refused in words, or compiled in a moment."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pageloom.errors import InvalidArgument, NotSupported
from pageloom.grammar import automaton
from pageloom.grammar.grammars import Grammars
from pageloom.grammar.json_schema import compile_schema
from pageloom.grammar.response_format import grammar_of

SECONDS = 5
"""Ten times what the slowest takes; without bounds most of these take minutes."""


def chain(length: int) -> dict[str, Any]:
    """Each definition is the next one."""
    links = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(length)}
    return {**links, f"d{length}": {"type": "string"}}


def branches(name: str, leaf: str) -> dict[str, Any]:
    """Alternatives of alternatives, eight levels of ten."""
    levels = {f"{name}{i}": {"anyOf": [{"$ref": f"#/$defs/{name}{i + 1}"}] * 10} for i in range(7)}
    return {**levels, f"{name}7": {"type": leaf}}


LARGE = {
    "references": {"anyOf": [{"$ref": f"#/$defs/d{i}"} for i in range(1600)], "$defs": chain(1600)},
    "two enums": {"oneOf": [{"enum": [f"{kind}{i}" for i in range(2400)]} for kind in "ab"]},
    "optional members": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(4900)}},
}
TOO_LARGE = {
    "alternatives": {"oneOf": [{"const": i} for i in range(2400)]},
    "alternatives of alternatives": {
        "oneOf": [{"$ref": "#/$defs/a0"}, {"$ref": "#/$defs/b0"}],
        "$defs": {**branches("a", "string"), **branches("b", "null")},
    },
    "names": {"required": [f"p{i}" for i in range(100_000)]},
    "values in a value": {"const": {"a": [[]] * 100_000}},
    "members": {"properties": {f"p{i}": {} for i in range(10_000)}},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_schema_is_compiled_in_a_moment(name: str) -> None:
    begun = time.perf_counter()
    assert compile_schema(LARGE[name]).is_possible
    assert time.perf_counter() - begun < SECONDS


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_schema_that_would_take_long_is_refused_in_a_moment(name: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(NotSupported):
        compile_schema(TOO_LARGE[name])
    assert time.perf_counter() - begun < SECONDS


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**400},
        {"type": "array", "minItems": 10**400, "maxItems": 10**400},
        {"const": 10**400, "type": ["integer", "string"]},
        {"oneOf": [{"const": 10**400}, {"const": 1}, {"type": "null"}]},
    ],
)
def test_whole_numbers_have_any_size(schema: Any) -> None:
    assert compile_schema(schema).is_possible


@pytest.mark.parametrize("index", ["9" * 5000, "-1", "01", "٣", "1.0", "7", ""])
def test_a_reference_to_no_item_of_a_list_is_refused(index: str) -> None:
    with pytest.raises(InvalidArgument, match="there is nothing at"):
        compile_schema({"anyOf": [{"type": "null"}, {"$ref": f"#/anyOf/{index}"}, {}, {}]})


BYTES = [*(bytes([byte]) for byte in range(256)), b""]
AMBIGUOUS = {
    "[": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}] * 2 + [{"type": "null"}]},
    '{"":': {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#"}}] * 3 + [{"type": "null"}]},
}


@pytest.mark.parametrize("opening", AMBIGUOUS)
def test_alternatives_that_multiply_with_each_level_end_the_answer_in_words(opening: str) -> None:
    grammars = Grammars(lambda token: BYTES[token], len(BYTES), end_ids=[256], mask_bytes=36)
    constraint = grammars.constraint(compile_schema(AMBIGUOUS[opening]))
    begun = time.perf_counter()
    with pytest.raises(NotSupported, match="fewer alternatives"):  # noqa: PT012 - at one of the levels
        for byte in (opening * 32).encode():
            assert constraint.allowed()[byte // 8] >> byte % 8 & 1
            constraint.advance(byte)
    assert time.perf_counter() - begun < 2 * SECONDS


def test_a_mask_over_thousands_of_alternatives_takes_a_moment() -> None:
    names = [f"{number:05}" for number in range(0, 90_000, 20)]
    tokens = [*BYTES, *(f'"{number:03}'.encode() for number in range(1000)), b'"00005']
    grammars = Grammars(lambda token: tokens[token], len(tokens), end_ids=[256], mask_bytes=160)
    constraint = grammars.constraint(compile_schema({"enum": names}))
    begun = time.perf_counter()
    mask = int.from_bytes(constraint.allowed(), "little")
    assert time.perf_counter() - begun < SECONDS
    begins = tuple(f'"{name}"'.encode() for name in names)
    expected = [i for i, token in enumerate(tokens) if token and any(text.startswith(token) for text in begins)]
    assert [token for token in range(len(tokens)) if mask >> token & 1] == expected


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("alternative", [{"type": None}, {"type": "string", "enum": ["a", deep(2000)]}])
def test_what_is_compared_before_it_is_compiled_is_refused_in_words(alternative: dict[str, Any]) -> None:
    with pytest.raises((InvalidArgument, NotSupported)):
        compile_schema({"oneOf": [alternative, {"type": "string", "enum": ["b"]}]})


def test_a_grammar_that_remembers_too_much_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    wanted = {"type": "json_schema", "json_schema": {"name": "texts", "schema": schema}}
    for format in (wanted, {"type": "json_object"}):
        first = grammar_of(format)
        assert grammar_of(format) is first
        monkeypatch.setattr(automaton, "MOST_STACKS", 0)
        assert grammar_of(format) is not first
        monkeypatch.undo()
