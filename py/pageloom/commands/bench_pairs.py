"""Two calls timed in turns, so that what disturbs one disturbs the other, and the ratio of each pair."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHORTEST_SECONDS = 0.002
"""A measurement repeats its call until it takes as long, so that the clock and its reading do not count."""
MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Pairs:
    """Seconds of one call, pair by pair: the peer's and ours."""

    peer: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """The peer's time over ours: above 1 we are faster."""
        return sorted(theirs / own for theirs, own in zip(self.peer, self.ours, strict=True))

    @property
    def ratio(self) -> float:
        """The median of the paired ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The ratio that a tenth of the pairs is below, and the one that a tenth is above."""
        ratios = self.ratios
        tenth = len(ratios) // 10
        return ratios[tenth], ratios[-1 - tenth]


def time_pairs(
    peer: Callable[[], object], ours: Callable[[], object], *, pairs: int, seconds: float = float("inf")
) -> Pairs:
    """`pairs` pairs, or as many, at least 3, as fit into `seconds`; each call is made once before."""
    repeats = [_repeats(peer), _repeats(ours)]
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    collecting = gc.isenabled()
    gc.disable()
    try:
        for done in range(pairs):
            for call, count, taken in zip((peer, ours), repeats, times, strict=True):
                taken.append(seconds_of(call, count))
            if done >= 2 and time.perf_counter() > end:
                break
    finally:
        if collecting:
            gc.enable()
    return Pairs(tuple(times[0]), tuple(times[1]))


def time_alone(call: Callable[[], object], *, times: int, seconds: float = float("inf")) -> list[float]:
    """Seconds of the call, `times` times or as often, at least once, as fits into `seconds`; after one not counted."""
    repeats = _repeats(call)
    end = time.perf_counter() + seconds
    taken = [seconds_of(call, repeats)]
    while len(taken) < times and time.perf_counter() < end:
        taken.append(seconds_of(call, repeats))
    return taken


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    """Seconds of one of `repeats` calls in a row."""
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats


def _repeats(call: Callable[[], object]) -> int:
    call()
    once = seconds_of(call, 1)
    return min(MOST_REPEATS, max(1, round(SHORTEST_SECONDS / max(once, 1e-9))))


def join(blocks: Sequence[Pairs]) -> Pairs:
    """All pairs of several blocks."""
    return Pairs(
        tuple(seconds for block in blocks for seconds in block.peer),
        tuple(seconds for block in blocks for seconds in block.ours),
    )
