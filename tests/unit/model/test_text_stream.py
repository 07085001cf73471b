"""Text out of token bytes, cut anywhere."""

from __future__ import annotations

import codecs
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pageloom.model import text_stream
from pageloom.model.text_stream import TextStream


def stream(pieces: list[bytes]) -> list[str]:
    decoder = TextStream()
    return [*(decoder.push(piece) for piece in pieces), decoder.finish()]


def test_holds_a_character_until_it_is_whole() -> None:
    assert stream([b"\xf0", b"\x9f", b"\x98", b"\x80"]) == ["", "", "", "😀", ""]
    korean = "한".encode()
    assert stream([korean[:2], korean[2:]]) == ["", "한", ""]


def test_replaces_an_impossible_byte_at_once() -> None:
    assert stream([b"\xff", b"a"]) == ["\ufffd", "a", ""]
    assert stream([b"\xe2\x82", b"a"]) == ["", "\ufffda", ""]


def test_replaces_a_dangling_start_at_the_end() -> None:
    assert stream([b"a\xf0\x9f"]) == ["a", "\ufffd"]


def test_a_space_flushes_nothing_that_is_incomplete() -> None:
    assert stream([b" \xed\x95", b"\x9c "]) == [" ", "한 ", ""]


def test_begins_anew_after_the_end() -> None:
    decoder = TextStream()
    decoder.push(b"\xf0")
    decoder.finish()
    assert decoder.push(b"ok") == "ok"


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=20).map(str.encode), st.lists(st.integers(0, 60), max_size=20))
def test_pieces_joined_equal_the_whole_decoded(data: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    assert "".join(stream([data[start:end] for start, end in pairwise(bounds)])) == data.decode(errors="replace")


def test_a_piece_costs_its_own_length_however_long_the_text(monkeypatch) -> None:
    """The decoder gets each byte once, so the last tokens of a long answer cost what the first did."""
    seen: list[int] = []

    class Counting(codecs.IncrementalDecoder):
        def decode(self, data: bytes, final: bool = False) -> str:
            seen.append(len(data))
            return codecs.decode(data, "latin-1")

    monkeypatch.setattr(text_stream.codecs, "getincrementaldecoder", lambda encoding: Counting)
    decoder = TextStream()
    for _ in range(4096):
        decoder.push(b"ab")
    assert seen == [2] * 4096
