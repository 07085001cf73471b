"""A pushdown automaton over bytes: where in a grammar a text may be, and where each next byte leads.

A position is a stack of what is still to come, innermost first. A grammar is ambiguous until more is known, so a text
is at several positions at once. Stacks are made once and shared, so that what is worked out for one is found again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pageloom.errors import NotSupported
from pageloom.grammar.expressions import (
    Choice,
    Expression,
    Literal,
    Nested,
    OneOf,
    Repeat,
    Rule,
    Sequence,
    StringRest,
    least_depths,
)
from pageloom.grammar.json_string import BODY, CLOSED, INVALID, TRANSITIONS

MAX_DEPTH = 32
"""Levels of nesting that an answer may have."""
MAX_POSITIONS = 5000
"""Of one text. As many as a schema may have parts, so that any `enum` is within it."""
MOST_STACKS = 100_000
"""That one grammar remembers before it is made anew; each takes some hundred bytes."""


@dataclass(frozen=True, slots=True)
class StringState:
    """Where in a `StringRest` a text is: the state of `json_string`, the characters that it still needs to begin, and
    those for which it has room; None is any number."""

    state: int
    need: int
    room: int | None


Progress = int | StringState
"""Bytes of a `Literal`, or rounds of a `Repeat`, that are done; what is left of a `StringRest`."""


@dataclass(eq=False, slots=True)
class Stack:
    """`expression` comes next, begun as far as `progress` says, and then `rest`; None is the end of the text."""

    expression: Expression
    progress: Progress
    rest: Stack | None
    depth: int
    moves: dict[int, Positions] = field(default_factory=dict)


Position = Stack | None
"""The top of a stack is a `Literal`, a `OneOf` or a `StringRest`; None where the text may end."""
Positions = tuple[Position, ...]


class Fork:
    """Positions by the bytes with which they go on, so that a byte is tried only where it may lead on."""

    def __init__(self, positions: Iterable[Position]) -> None:
        self._by_byte: dict[int, list[Stack]] = {}
        self._in_strings: list[Stack] = []
        for stack in positions:
            if stack is None:
                continue
            match stack.expression:
                case Literal(data=data):
                    assert isinstance(stack.progress, int)
                    self._by_byte.setdefault(data[stack.progress], []).append(stack)
                case OneOf(values=values):
                    for byte in values:
                        self._by_byte.setdefault(byte, []).append(stack)
                case _:
                    self._in_strings.append(stack)

    def at(self, byte: int) -> Iterable[Stack]:
        """Those that may go on with `byte`."""
        return (*self._by_byte.get(byte, ()), *self._in_strings)


class Automaton:
    """One grammar. `is_possible` says whether it has any string within `MAX_DEPTH`; without, nothing else is asked."""

    def __init__(self, root: Expression) -> None:
        self._least_depths = least_depths(root)
        self._stacks: dict[tuple[Expression, Progress, Stack | None, int], Stack] = {}
        self.is_possible = self._least_depths[root] <= MAX_DEPTH
        self.has_strings = self._least_depths[root] < math.inf
        """Whether there are any at whatever depth."""
        self.start: Positions = self._settle([self._stack(root, None, 0)]) if self.is_possible else ()

    @property
    def is_full(self) -> bool:
        """Whether it remembers so much of what was written that a new one should take its place."""
        return len(self._stacks) > MOST_STACKS

    def advance(self, positions: Iterable[Position], byte: int) -> Positions:
        """Where a text goes from any of `positions` with one more byte; empty where it leaves the grammar.

        Raises `NotSupported` where there are over `MAX_POSITIONS`: alternatives that begin alike multiply with each
        level.
        """
        found: dict[Position, None] = {}
        for position in positions:
            if position is not None:
                for target in self._move(position, byte):
                    found[target] = None
                if len(found) > MAX_POSITIONS:
                    raise NotSupported(
                        f"the text may go on in over {MAX_POSITIONS} ways here; give the schema fewer alternatives "
                        "that begin alike"
                    )
        return tuple(found)

    def behind(self, stack: Stack) -> Positions:
        """Where a text is once the top of `stack` is done."""
        return self._settle([stack.rest])

    def _move(self, stack: Stack, byte: int) -> Positions:
        known = stack.moves.get(byte)
        if known is not None:
            return known
        targets = self._targets(stack, byte)
        if targets:
            stack.moves[byte] = targets
        return targets

    def _targets(self, stack: Stack, byte: int) -> Positions:
        expression, progress = stack.expression, stack.progress
        if isinstance(expression, Literal):
            assert isinstance(progress, int)
            if expression.data[progress] != byte:
                return ()
            if progress + 1 < len(expression.data):
                return (self._stack(expression, stack.rest, stack.depth, progress + 1),)
            return self.behind(stack)
        if isinstance(expression, OneOf):
            return self.behind(stack) if byte in expression.values else ()
        assert isinstance(progress, StringState)
        state = TRANSITIONS[progress.state][byte]
        if state == INVALID:
            return ()
        need, room = progress.need, progress.room
        if state == CLOSED:
            return () if need else self.behind(stack)
        if progress.state == BODY:
            if room == 0:
                return ()
            need, room = max(0, need - 1), None if room is None else room - 1
        return (self._stack(expression, stack.rest, stack.depth, StringState(state, need, room)),)

    def _stack(self, expression: Expression, rest: Stack | None, depth: int, progress: Progress | None = None) -> Stack:
        if progress is None:
            progress = _beginning(expression)
        key = (expression, progress, rest, depth)
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = Stack(expression, progress, rest, depth)
        return stack

    def _settle(self, pending: list[Stack | None]) -> Positions:
        """The positions that are reached from these stacks without a byte."""
        seen: set[Stack | None] = set()
        found: list[Position] = []
        while pending:
            stack = pending.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if stack is None or isinstance(stack.expression, Literal | OneOf | StringRest):
                found.append(stack)
            else:
                pending.extend(self._opened(stack))
        return tuple(found)

    def _opened(self, stack: Stack) -> list[Stack | None]:
        """The stacks that a stack stands for when its top is taken apart once."""
        rest, depth = stack.rest, stack.depth
        match stack.expression:
            case Sequence(items=items):
                for item in reversed(items):
                    rest = self._stack(item, rest, depth)
                return [rest]
            case Choice(options=options):
                return [self._stack(option, rest, depth) for option in options if self._fits(option, depth)]
            case Rule(body=body):
                assert body is not None, "a rule is filled in before its grammar is used"
                return [self._stack(body, rest, depth)]
            case Nested(body=body):
                return [self._stack(body, rest, depth + 1)]
            case Repeat() as repeat:
                return self._next_round(repeat, stack)
            case _:
                raise TypeError(f"{stack.expression!r} is no expression that is taken apart")

    def _next_round(self, repeat: Repeat, stack: Stack) -> list[Stack | None]:
        assert isinstance(stack.progress, int)
        done, opened = stack.progress, list[Stack | None]()
        if done >= repeat.least:
            opened.append(stack.rest)
        if (repeat.most is None or done < repeat.most) and self._fits(repeat.item, stack.depth):
            following = done + 1 if repeat.most is not None else min(done + 1, repeat.least)
            again = self._stack(repeat, stack.rest, stack.depth, following)
            opened.append(self._stack(repeat.item, again, stack.depth))
        return opened

    def _fits(self, expression: Expression, depth: int) -> bool:
        return depth + self._least_depths[expression] <= MAX_DEPTH


def _beginning(expression: Expression) -> Progress:
    if isinstance(expression, StringRest):
        return StringState(BODY, expression.least, expression.most)
    return 0
