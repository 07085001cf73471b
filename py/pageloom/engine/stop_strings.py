"""Stop strings: text is held back while it may still turn into one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopScan:
    """`text` may be shown for good; `stopped_by` is the stop string that has been completed behind it."""

    text: str
    stopped_by: str | None = None


class StopStrings:
    """Cuts a stream of text before the first stop string to be completed.

    First is by where a stop string ends; of those that end together the longest counts. So the cut depends on the
    characters alone, not on how they were split into pieces, and nothing past the end of a stop string is ever needed.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def feed(self, text: str) -> StopScan:
        """The text that can be shown now. After a stop, nothing more may be fed."""
        if not self._stops:
            return StopScan(text)
        self._held += text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            shown, self._held = self._held[:start], ""
            return StopScan(shown, stop)
        held = self._length_to_hold()
        cut = len(self._held) - held
        shown, self._held = self._held[:cut], self._held[cut:]
        return StopScan(shown)

    def finish(self) -> str:
        """What was held back, once no more text can come."""
        held, self._held = self._held, ""
        return held

    def _length_to_hold(self) -> int:
        longest = min(max(map(len, self._stops)) - 1, len(self._held))
        return next((n for n in range(longest, 0, -1) if self._is_stop_prefix(self._held[-n:])), 0)

    def _is_stop_prefix(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)
