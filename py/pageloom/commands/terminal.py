"""What the commands say on standard error: one line of progress that redraws itself, and a summary."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

_REDRAW_SECONDS = 0.1
_BAR_CELLS = 24
_STAGES = {
    "python": "Starting Python",
    "download": "Downloading the model",
    "store": "Keeping a copy of the model",
    "header": "Reading the model's header",
    "weights": "Weights to the device",
    "compile": "Compiling programs",
}


class ProgressLine:
    """On a terminal a bar that redraws itself; elsewhere one plain line for each new label."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._label = ""
        self._drawn_at = float("-inf")

    def show(self, label: str, done: int, total: int, detail: str = "") -> None:
        now = self._clock()
        if not self._is_terminal:
            if label != self._label:
                print(label, file=self._stream, flush=True)
        elif label != self._label or done >= total or now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            filled = _BAR_CELLS * min(done, total) // total if total else 0
            line = f"{label} [{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {detail}"
            self._draw(line[: shutil.get_terminal_size().columns - 1])
        self._label = label

    def show_stage(self, stage: str, done: int, total: int) -> None:
        """Progress of a load: `done` and `total` are bytes, or for "compile" and "python" a count."""
        counted = (
            f"{done} of {total}" if stage in ("compile", "python") else f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
        )
        self.show(_STAGES.get(stage, stage), done, total, counted)

    def clear(self) -> None:
        if self._is_terminal:
            self._draw("")

    def _draw(self, line: str) -> None:
        print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
