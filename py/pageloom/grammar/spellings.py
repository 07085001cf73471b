"""The bytes of a vocabulary's tokens in order, so that tokens which begin alike are looked at together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pageloom.grammar.json_string import BODY, CLOSED, INVALID, TRANSITIONS

State = TypeVar("State")


def bits(numbers: Iterable[int], size: int) -> int:
    """An integer with these of its `size` bits set."""
    data = bytearray(-(-size // 8))
    for number in numbers:
        data[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(data, "little")


def matching(spellings: Sequence[bytes], start: State, step: Callable[[State, int], State | None]) -> Iterator[int]:
    """The indices of those of `spellings` (sorted, each once) all of whose bytes `step` accepts from `start`.

    What begins like a refused one is passed over, and what begins like the one before is not stepped through again.
    """
    states = [start]
    path = b""
    index = 0
    while index < len(spellings):
        spelling = spellings[index]
        shared = _common_length(path, spelling, len(states) - 1)
        del states[shared + 1 :]
        path = spelling
        for length in range(shared, len(spelling)):
            state = step(states[-1], spelling[length])
            if state is None:
                index = bisect_left(spellings, _behind(spelling[: length + 1]), index + 1)
                break
            states.append(state)
        else:
            yield index
            index += 1


def _common_length(first: bytes, second: bytes, most: int) -> int:
    length = 0
    for a, b in zip(first[:most], second, strict=False):
        if a != b:
            break
        length += 1
    return length


def _behind(prefix: bytes) -> bytes:
    """The least byte string behind all that begin with `prefix`; for a prefix of 0xFF bytes alone one that is longer
    than any token."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else prefix + b"\xff" * 1024


@dataclass(frozen=True, slots=True)
class StringTokens:
    """What each token is from one state inside a JSON string, as masks of tokens by how many characters they begin.

    `inside[n]` stay within the string. Those that close it go on with `tails[i]`, a sorted list; `closing[i]` has them.
    """

    inside: Mapping[int, int]
    tails: Sequence[bytes]
    closing: Sequence[Mapping[int, int]]


class Spellings:
    """The tokens of one vocabulary by their bytes; those without bytes (control tokens) are left out."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """`token_bytes[i]` is what token i stands for."""
        self.token_bytes = token_bytes
        self.size = len(token_bytes)
        ids: dict[bytes, list[int]] = {}
        for token_id, spelling in enumerate(token_bytes):
            if spelling:
                ids.setdefault(spelling, []).append(token_id)
        self.sorted = sorted(ids)
        self.ids = [ids[spelling] for spelling in self.sorted]
        self.longest = max(map(len, self.sorted), default=0)
        self._string_tokens: dict[int, StringTokens] = {}

    def string_tokens(self, state: int) -> StringTokens:
        """What the tokens are from a state of `json_string`; worked out once."""
        if state not in self._string_tokens:
            self._string_tokens[state] = self._sort_from(state)
        return self._string_tokens[state]

    def _sort_from(self, start: int) -> StringTokens:
        inside: dict[int, list[int]] = {}
        closing: dict[bytes, dict[int, list[int]]] = {}
        for spelling, ids in zip(self.sorted, self.ids, strict=True):
            state, begun, used = start, 0, 0
            while used < len(spelling) and state >= 0:
                begun += state == BODY
                state = TRANSITIONS[state][spelling[used]]
                used += 1
            if state == CLOSED:  # the quote was counted as a character
                closing.setdefault(spelling[used:], {}).setdefault(begun - 1, []).extend(ids)
            elif state != INVALID:
                inside.setdefault(begun, []).extend(ids)
        tails = sorted(closing)
        return StringTokens(self._masks(inside), tails, [self._masks(closing[tail]) for tail in tails])

    def _masks(self, ids: Mapping[int, Iterable[int]]) -> dict[int, int]:
        return {begun: bits(members, self.size) for begun, members in ids.items()}
