"""Shape buckets of a Runner: a step is replayed from the smallest recording that is large enough for it."""

from __future__ import annotations

from collections.abc import Sequence


def powers_of_two(smallest: int, largest: int) -> tuple[int, ...]:
    """Ascending buckets from `smallest`, doubling, that end with `largest` itself."""
    buckets = []
    size = smallest
    while size < largest:
        buckets.append(size)
        size *= 2
    return (*buckets, largest)


def bucket_for(buckets: Sequence[int], size: int) -> int:
    """The smallest bucket of at least `size`; `size` is at most the largest bucket."""
    return next(bucket for bucket in buckets if bucket >= size)
