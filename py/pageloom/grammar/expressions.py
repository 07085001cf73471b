"""What a grammar is made of. Expressions are compared by identity; recursion goes through a `Rule`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


class Expression:
    """A set of byte strings."""


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Expression):
    """Exactly these bytes; at least one."""

    data: bytes


@dataclass(frozen=True, eq=False, slots=True)
class OneOf(Expression):
    """One byte of a set."""

    values: frozenset[int]


@dataclass(frozen=True, eq=False, slots=True)
class StringRest(Expression):
    """A JSON string behind its opening quote, the closing one included, of `least` to `most` characters; None is any
    number. An escape is one character, and none of them is half of a surrogate pair."""

    least: int = 0
    most: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Sequence(Expression):
    """One after the other; none at all is the empty string."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Choice(Expression):
    """Any of them; without options there is no such string."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Repeat(Expression):
    """`item`, which is never empty, `least` to `most` times; None is any number."""

    item: Expression
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Nested(Expression):
    """`body`, one level deeper."""

    body: Expression


@dataclass(eq=False, slots=True)
class Rule(Expression):
    """`body`, which is filled in later and may have this rule in it."""

    body: Expression | None = None


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is directly made of."""
    match expression:
        case Sequence(items=parts) | Choice(options=parts):
            return parts
        case Repeat(item=part) | Nested(body=part):
            return (part,)
        case Rule(body=body):
            return () if body is None else (body,)
        case _:
            return ()


def least_depths(root: Expression) -> Mapping[Expression, float]:
    """For every part of `root` how many levels its shallowest string has; infinity where it has no string at all.

    Knuth's generalisation of Dijkstra's algorithm to grammars, in time linear in the size of the grammar: depths are
    found in ascending order, so that the first one found for an expression is its least.
    """
    users: dict[Expression, list[Expression]] = {root: []}
    pending = [root]
    while pending:
        expression = pending.pop()
        for part in parts_of(expression):
            if part not in users:
                users[part] = []
                pending.append(part)
            users[part].append(expression)
    missing = {expression: _num_needed(expression) for expression in users}
    found = deque((expression, 0) for expression, number in missing.items() if number == 0)
    depths = dict.fromkeys(users, math.inf)
    while found:
        expression, depth = found.popleft()
        depths[expression] = depth
        for user in users[expression]:
            missing[user] -= 1
            if missing[user] == 0 and isinstance(user, Nested):
                found.append((user, depth + 1))
            elif missing[user] == 0:
                found.appendleft((user, depth))
    return depths


def _num_needed(expression: Expression) -> int:
    """Of how many of its parts the depths have to be known for its own."""
    match expression:
        case Choice() | Rule():
            return 1
        case Repeat(least=0):
            return 0
        case _:
            return len(parts_of(expression))
