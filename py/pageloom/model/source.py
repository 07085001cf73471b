"""Where the bytes of a model come from: anything that can be read a range at a time."""

from __future__ import annotations

from typing import Protocol


class RangedSource(Protocol):
    """A file, Blob or URL that is read in ranges and never held whole."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises `BadModelFile` where the range leaves the source."""
        ...
