"""Which tokens may come next in a text of a grammar.

A mask is worked out for each stack that a text is at and kept, so that texts of one grammar share the work. Most of a
vocabulary is free text, so the one place where nearly every token is allowed, inside a string, does not look at tokens
one by one: `StringTokens` has them sorted by what they do to the string, whatever comes behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from pageloom.errors import NotSupported
from pageloom.grammar.automaton import Automaton, Fork, Position, Positions, Stack, StringState
from pageloom.grammar.spellings import Spellings, bits, matching

MOST_KEPT_BYTES = 2**22
"""Of the masks of stacks, and as many of the masks of positions, that a grammar keeps; then it begins anew."""


MOST_ALONE = 16
"""Positions of which each has a mask of its own that is kept; of more, one for all costs less."""


class TokenMasks:
    """One grammar over one vocabulary."""

    def __init__(self, automaton: Automaton, spellings: Spellings, *, end_ids: Iterable[int], mask_bytes: int) -> None:
        """`end_ids` are allowed where a text may end. Masks have `mask_bytes` bytes, of which token i has bit i % 8 of
        byte i // 8."""
        self.automaton = automaton
        self._spellings = spellings
        self._end_mask = bits(end_ids, spellings.size)
        self._mask_bytes = mask_bytes
        self._most_kept = MOST_KEPT_BYTES // mask_bytes + 1
        self._by_stack: dict[object, int] = {}
        self._by_positions: dict[tuple[object, ...], bytes] = {}

    def allowed(self, positions: Positions) -> bytes:
        """The tokens that may come next. Raises `NotSupported` where there is none, and as `Automaton.advance` does."""
        keys = tuple(map(self._key, positions))
        mask = self._by_positions.get(keys)
        if mask is None:
            if len(self._by_positions) >= self._most_kept:
                self._by_positions.clear()
            value = self._value(positions, keys)
            if not value:
                raise NotSupported("no token of the model's vocabulary can go on here as the response format demands")
            mask = self._by_positions[keys] = value.to_bytes(self._mask_bytes, "little")
        return mask

    def behind(self, positions: Positions, token_id: int) -> Positions:
        """Where a text is after one of the tokens that are allowed at `positions`."""
        for byte in self._spellings.token_bytes[token_id]:
            positions = self.automaton.advance(positions, byte)
        return positions

    def _value(self, positions: Positions, keys: tuple[object, ...]) -> int:
        """Many positions are looked at together, as far as they are not within strings: they begin alike."""
        alone = dict(zip(keys, positions, strict=True))
        together: Positions = ()
        if len(positions) > MOST_ALONE:
            together = tuple(position for position in positions if not _is_in_string(position))
            for position in together:
                del alone[position]
        masks = (self._mask(position, key) for key, position in alone.items())
        return reduce(or_, masks, self._anywhere(together) if together else 0)

    def _mask(self, position: Position, key: object) -> int:
        if position is None:
            return self._end_mask
        mask = self._by_stack.get(key)
        if mask is None:
            if len(self._by_stack) >= self._most_kept:
                self._by_stack.clear()
            progress = position.progress
            if isinstance(progress, StringState):
                mask = self._in_string(position, progress)
            else:
                mask = self._anywhere((position,))
            self._by_stack[key] = mask
        return mask

    def _key(self, position: Position) -> object:
        """Strings that differ only in how many characters more than a token's they need or have room for are alike."""
        progress = None if position is None else position.progress
        if position is None or not isinstance(progress, StringState):
            return position
        longest = self._spellings.longest
        room = None if progress.room is None or progress.room >= longest else progress.room
        return (position.rest, progress.state, min(progress.need, longest + 1), room)

    def _anywhere(self, positions: Positions) -> int:
        found = matching(self._spellings.sorted, Fork(positions), self._step)
        return bits((token_id for index in found for token_id in self._spellings.ids[index]), self._spellings.size)

    def _in_string(self, position: Stack, string: StringState) -> int:
        tokens = self._spellings.string_tokens(string.state)
        need, room = string.need, self._spellings.longest if string.room is None else string.room
        mask = reduce(or_, (mask for begun, mask in tokens.inside.items() if begun <= room), 0)
        for index in matching(tokens.tails, Fork(self.automaton.behind(position)), self._step):
            for begun, closing in tokens.closing[index].items():
                if need <= begun <= room:
                    mask |= closing
        return mask

    def _step(self, fork: Fork, byte: int) -> Fork | None:
        positions = self.automaton.advance(fork.at(byte), byte)
        return Fork(positions) if positions else None


def _is_in_string(position: Position) -> bool:
    return position is None or isinstance(position.progress, StringState)


class GrammarConstraint:
    """One text of a grammar, token by token; an `engine.constraint.Constraint`."""

    def __init__(self, masks: TokenMasks) -> None:
        self._masks = masks
        self._positions = masks.automaton.start
        self._refusal: NotSupported | None = None

    def allowed(self) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        return self._masks.allowed(self._positions)

    def advance(self, token_id: int) -> None:
        try:
            self._positions = self._masks.behind(self._positions, token_id)
        except NotSupported as error:
            self._refusal = error

    @property
    def is_complete(self) -> bool:
        return self._positions == (None,)
