"""Finds tokens by their text, the longest at each place, from left to right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property


class TokenFinder:
    """A set of texts to find in other texts. Empty texts are ignored."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = frozenset(texts) - {""}
        lengths: dict[str, set[int]] = {}
        for text in self.texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self.longest = max(map(len, self.texts), default=0)
        self._candidates = re.compile(f"[{re.escape(''.join(lengths))}]" if lengths else r"(?!)")

    @cached_property
    def proper_suffixes(self) -> frozenset[str]:
        """Every end of a text of the set, without the whole texts themselves."""
        return frozenset(text[start:] for text in self.texts for start in range(1, len(text)))

    def starts(self, text: str) -> Iterator[int]:
        """Where a text of the set could begin by its first character."""
        return (match.start() for match in self._candidates.finditer(text))

    def match(self, text: str, start: int) -> str | None:
        """The longest text of the set that begins at `start`."""
        for length in self._lengths.get(text[start], ()):
            if text[start : start + length] in self.texts:
                return text[start : start + length]
        return None

    def split(self, text: str, barrier: str | None = None) -> Iterator[tuple[str, bool]]:
        """The pieces of `text` in order; the flag tells a text of the set from what lies between. Nothing is found
        right behind the character `barrier`."""
        plain_start = 0
        for start in self.starts(text):
            if start < plain_start or (barrier and start > 0 and text[start - 1] == barrier):
                continue
            if found := self.match(text, start):
                if start > plain_start:
                    yield text[plain_start:start], False
                yield found, True
                plain_start = start + len(found)
        if plain_start < len(text):
            yield text[plain_start:], False
