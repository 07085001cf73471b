"""JSON values as expressions.

Of the ways to write a value those are left out in which a model could go on without end or lose itself: between two
parts there is nothing, one space, or a new line and at most `MAX_INDENT` spaces, and numbers have a bounded number of
digits. Every value that fits can be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pageloom.grammar.expressions import Choice, Expression, Literal, Nested, OneOf, Repeat, Rule, Sequence, StringRest

MAX_INDENT = 16
MAX_DIGITS = 15
"""Of the whole part and of the fraction: as many as every reader keeps."""
MAX_EXPONENT_DIGITS = 2


def _bytes(characters: bytes) -> OneOf:
    return OneOf(frozenset(characters))


def _optional(*items: Expression) -> Expression:
    return Choice((Sequence(()), Sequence(items)))


_QUOTE, _COMMA, _COLON, _MINUS = Literal(b'"'), Literal(b","), Literal(b":"), Literal(b"-")
_SPACE, _NEW_LINE = Literal(b" "), Literal(b"\n")
_DIGIT = _bytes(b"0123456789")
_GAP = Choice((Sequence(()), _SPACE, Sequence((_NEW_LINE, Repeat(_SPACE, 0, MAX_INDENT)))))
_WHOLE = Choice((Literal(b"0"), Sequence((_bytes(b"123456789"), Repeat(_DIGIT, 0, MAX_DIGITS - 1)))))

INTEGER: Expression = Sequence((_optional(_MINUS), _WHOLE))
NUMBER: Expression = Sequence(
    (
        INTEGER,
        _optional(Literal(b"."), Repeat(_DIGIT, 1, MAX_DIGITS)),
        _optional(_bytes(b"eE"), _optional(_bytes(b"+-")), Repeat(_DIGIT, 1, MAX_EXPONENT_DIGITS)),
    )
)
BOOLEAN: Expression = Choice((Literal(b"true"), Literal(b"false")))
NULL: Expression = Literal(b"null")
IMPOSSIBLE: Expression = Choice(())


def string(least: int = 0, most: int | None = None) -> Expression:
    """Any string of `least` to `most` characters."""
    return Sequence((_QUOTE, StringRest(least, most)))


def constant(value: Any) -> Expression:
    """One value; its strings in the shortest spelling. Raises `UnicodeEncodeError` for half of a surrogate pair."""
    if isinstance(value, dict):
        return object_of([Member(name, constant(item), required=True) for name, item in value.items()])
    if isinstance(value, list):
        return _enclosed(b"[", [constant(item) for item in value], b"]")
    return Literal(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())


@dataclass(frozen=True, slots=True)
class Member:
    """A name of an object and its value."""

    name: str
    value: Expression
    required: bool


def object_of(members: Iterable[Member]) -> Expression:
    """An object with these members, in their order, and no others. Raises as `constant` does for a name."""
    first: Expression = Literal(b"}")
    later: Expression = Sequence((_GAP, Literal(b"}")))
    for member in reversed(list(members)):
        written = Sequence((constant(member.name), _COLON, _GAP, member.value, later))
        with_comma = Sequence((_COMMA, _GAP, written))
        first = written if member.required else Choice((written, first))
        later = with_comma if member.required else Choice((with_comma, later))
    return Nested(Sequence((Literal(b"{"), _GAP, first)))


def map_of(value: Expression) -> Expression:
    """An object with any names."""
    return _list(b"{", Sequence((string(), _COLON, _GAP, value)), b"}")


def array_of(item: Expression, least: int = 0, most: int | None = None) -> Expression:
    return _list(b"[", item, b"]", least, most)


def _list(opening: bytes, item: Expression, closing: bytes, least: int = 0, most: int | None = None) -> Expression:
    empty: tuple[Expression, ...] = (Literal(closing),) if least == 0 else ()
    more = Repeat(Sequence((_COMMA, _GAP, item)), max(0, least - 1), None if most is None else most - 1)
    some: tuple[Expression, ...] = (Sequence((item, more, _GAP, Literal(closing))),) if most != 0 else ()
    return Nested(Sequence((Literal(opening), _GAP, Choice(empty + some))))


def _enclosed(opening: bytes, items: list[Expression], closing: bytes) -> Expression:
    parts: list[Expression] = [Literal(opening), _GAP]
    for index, item in enumerate(items):
        parts += [_COMMA, _GAP, item] if index else [item]
    return Nested(Sequence((*parts, *([_GAP] if items else []), Literal(closing))))


def _any_value() -> Rule:
    rule = Rule()
    rule.body = Choice((string(), NUMBER, BOOLEAN, NULL, array_of(rule), map_of(rule)))
    return rule


ANY_VALUE: Expression = _any_value()
ANY_OBJECT: Expression = map_of(ANY_VALUE)
BY_TYPE: Mapping[str, Expression] = {
    "string": string(),
    "number": NUMBER,
    "integer": INTEGER,
    "boolean": BOOLEAN,
    "null": NULL,
    "array": array_of(ANY_VALUE),
    "object": ANY_OBJECT,
}
