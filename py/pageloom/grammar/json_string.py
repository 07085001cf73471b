"""The bytes of a JSON string behind its opening quote, as a finite automaton.

Characters are well-formed UTF-8 (Unicode 17, table 3-7) or escapes. Escapes of surrogates are left out: every character
can be written as itself, and half of a pair is none.
"""

from __future__ import annotations

from collections.abc import Iterable

BODY = 0
"""Between two characters: only here the string can end."""
CLOSED = -1
"""Behind the closing quote."""
INVALID = -2

_ESCAPE, _HEX_1, _HEX_2, _HEX_2_LOW, _HEX_3, _HEX_4 = range(1, 7)
_TAIL_1, _TAIL_2, _TAIL_3, _AFTER_E0, _AFTER_ED, _AFTER_F0, _AFTER_F4 = range(7, 14)
_DIGITS = b"0123456789abcdefABCDEF"

_MOVES: dict[int, list[tuple[Iterable[int], int]]] = {
    BODY: [
        (range(0x20, 0x80), BODY), (b"\\", _ESCAPE), (b'"', CLOSED),
        (range(0xC2, 0xE0), _TAIL_1), (range(0xE1, 0xF0), _TAIL_2), (range(0xF1, 0xF4), _TAIL_3),
        ([0xE0], _AFTER_E0), ([0xED], _AFTER_ED), ([0xF0], _AFTER_F0), ([0xF4], _AFTER_F4),
    ],
    _ESCAPE: [(b'"\\/bfnrt', BODY), (b"u", _HEX_1)],
    _HEX_1: [(_DIGITS, _HEX_2), (b"dD", _HEX_2_LOW)],
    _HEX_2: [(_DIGITS, _HEX_3)],
    _HEX_2_LOW: [(b"01234567", _HEX_3)],
    _HEX_3: [(_DIGITS, _HEX_4)],
    _HEX_4: [(_DIGITS, BODY)],
    _TAIL_1: [(range(0x80, 0xC0), BODY)],
    _TAIL_2: [(range(0x80, 0xC0), _TAIL_1)],
    _TAIL_3: [(range(0x80, 0xC0), _TAIL_2)],
    _AFTER_E0: [(range(0xA0, 0xC0), _TAIL_1)],
    _AFTER_ED: [(range(0x80, 0xA0), _TAIL_1)],
    _AFTER_F0: [(range(0x90, 0xC0), _TAIL_2)],
    _AFTER_F4: [(range(0x80, 0x90), _TAIL_2)],
}  # fmt: skip
"""Of each state the bytes that lead to another; a later entry counts for a byte that several have."""


def _table(moves: list[tuple[Iterable[int], int]]) -> list[int]:
    row = [INVALID] * 256
    for values, state in moves:
        for byte in values:
            row[byte] = state
    return row


TRANSITIONS = [_table(_MOVES[state]) for state in sorted(_MOVES)]
"""`TRANSITIONS[state][byte]` is the next state, `CLOSED` or `INVALID`. Leaving `BODY` other than to `CLOSED` begins a
character."""
