"""From token ids to the text that may be shown: incremental decoding, then stop strings."""

from __future__ import annotations

from typing import Protocol

from pageloom.engine.stop_strings import StopScan, StopStrings


class Detokenizer(Protocol):
    """Decodes one request's tokens as they come."""

    def feed(self, token_id: int) -> str:
        """The text that is complete with this token; an incomplete character is kept for later."""
        ...

    def finish(self) -> str:
        """What an incomplete character at the very end stands for."""
        ...


class OutputText:
    """The text of one request."""

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(stops)
        self._shown: list[str] = []

    @property
    def text(self) -> str:
        """Everything shown so far."""
        return "".join(self._shown)

    def feed(self, token_id: int) -> StopScan:
        return self._show(self._stops.feed(self._detokenizer.feed(token_id)))

    def finish(self) -> StopScan:
        """The rest, once no token can follow; it may still complete a stop string."""
        scan = self._stops.feed(self._detokenizer.finish())
        if scan.stopped_by is None:
            scan = StopScan(scan.text + self._stops.finish())
        return self._show(scan)

    def _show(self, scan: StopScan) -> StopScan:
        if scan.text:
            self._shown.append(scan.text)
        return scan
