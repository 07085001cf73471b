"""Text is cut before the first stop string to be completed, however it arrives."""

import itertools

import pytest

from pageloom.engine.stop_strings import StopStrings


def stream(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], str | None]:
    """The text shown after each piece, the rest at the end included, and what stopped it."""
    strings = StopStrings(stops)
    shown = []
    for piece in pieces:
        scan = strings.feed(piece)
        shown.append(scan.text)
        if scan.stopped_by is not None:
            return shown, scan.stopped_by
    return [*shown, strings.finish()], None


def splits(text: str) -> list[list[str]]:
    """Every way to cut `text` into three pieces."""
    cuts = itertools.combinations_with_replacement(range(len(text) + 1), 2)
    return [[text[:first], text[first:second], text[second:]] for first, second in cuts]


CASES = [
    ((">>>>>>> UPDATED",), "code\n>>>>>>> UPDATED more", "code\n", ">>>>>>> UPDATED"),
    ((">>>>>>> UPDATED",), "a >>>>>>>> UPDATED", "a >", ">>>>>>> UPDATED"),
    (("END", "ENDING"), "the ENDING", "the ", "END"),
    (("abc", "b"), "xabc", "xa", "b"),
    (("bc", "abc"), "xabc", "x", "abc"),
    (("\n\n",), "a\nb\n\nc", "a\nb", "\n\n"),
    (("é",), "caf\u00e9 noir", "caf", "é"),
    (("aab",), "aaab", "a", "aab"),
    (("a",), "a", "", "a"),
]


@pytest.mark.parametrize(("stops", "text", "shown", "stop"), CASES)
def test_the_cut_is_the_same_at_every_split(stops: tuple[str, ...], text: str, shown: str, stop: str) -> None:
    for pieces in splits(text):
        parts, stopped_by = stream(stops, pieces)
        assert ("".join(parts), stopped_by) == (shown, stop), pieces


@pytest.mark.parametrize("text", ["", "plain", "END", "ENDIN", ">>>>>>> UPDATE", "EENDI"])
def test_text_without_a_stop_string_comes_whole(text: str) -> None:
    for pieces in splits(text):
        parts, stopped_by = stream(("ENDING", ">>>>>>> UPDATED"), pieces)
        assert ("".join(parts), stopped_by) == (text, None)


def test_nothing_is_held_back_that_cannot_become_a_stop_string() -> None:
    parts, _ = stream(("STOP",), ["go S", "o ST", "OP"])
    assert parts == ["go ", "So ", ""]
    assert stream((), ["ST", "O"]) == (["ST", "O", ""], None)


def test_no_part_of_a_stop_string_is_ever_shown() -> None:
    text, stop = "x>>>>>>> UPDATED", ">>>>>>> UPDATED"
    parts, _ = stream((stop,), list(text))
    assert list(itertools.accumulate(parts)) == ["x"] * len(text)
