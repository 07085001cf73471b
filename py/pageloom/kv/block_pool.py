"""The pool of KV blocks: reference counts, the order of reuse, and eviction of cached blocks.

A block is in exactly one state:

    free ----allocate---> used (references >= 1) ---last release---> free       where its content is not cached
      ^                    ^                   `---last release---> evictable   where it is
      |                    `------share------- evictable
      `-- allocate takes evictable blocks, least recently released first, once no free one is left
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from pageloom.errors import PageloomError
from pageloom.kv.prefix_cache import PrefixCache


class BlockAccountingError(PageloomError):
    """The books of the pool do not balance (double free, foreign block): always a fault of the engine itself."""


class BlockPool:
    """Reference-counted blocks 0 .. num_blocks - 1."""

    def __init__(self, num_blocks: int, cache: PrefixCache) -> None:
        self.num_blocks = num_blocks
        self._cache = cache
        self._references = [0] * num_blocks
        self._free = deque(range(num_blocks))
        self._evictable: dict[int, None] = {}
        self._num_shared = 0
        self.num_evicted = 0
        """Cached blocks whose content was given up for other content, since the pool was made."""

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give: free and evictable ones."""
        return len(self._free) + len(self._evictable)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def num_shared(self) -> int:
        """Blocks with two references or more."""
        return self._num_shared

    def references(self, block_id: int) -> int:
        return self._references[block_id]

    def reuse_order(self) -> tuple[int, ...]:
        """The available blocks in the order in which `allocate` gives them."""
        return (*self._free, *self._evictable)

    def can_allocate(self, count: int, *, keeping: Iterable[int] = ()) -> bool:
        """Whether `count` blocks are available apart from those of `keeping`, which the caller is about to share."""
        return count <= self.num_available - sum(block in self._evictable for block in keeping)

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each, their content undefined; None where they are not available."""
        if not self.can_allocate(count):
            return None
        blocks = [self._take() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def share(self, block_ids: Sequence[int]) -> None:
        """Add a reference to each cached block."""
        for block in block_ids:
            if block not in self._cache:
                raise BlockAccountingError(f"block {block} is not cached, so nobody may share it")
        for block in block_ids:
            self._evictable.pop(block, None)
            self._references[block] += 1
            self._num_shared += self._references[block] == 2

    def release(self, block_ids: Sequence[int]) -> None:
        """Drop a reference of each block of one table, given first block first.

        The tail is freed first, so that what is evicted first is what the fewest prompts begin with.
        Raises `BlockAccountingError` before anything changes.
        """
        if len(set(block_ids)) != len(block_ids):
            raise BlockAccountingError(f"the same block is released twice in {list(block_ids)}")
        for block in block_ids:
            if not 0 <= block < self.num_blocks:
                raise BlockAccountingError(f"block {block} is released to a pool of blocks 0 to {self.num_blocks - 1}")
            if self._references[block] == 0:
                raise BlockAccountingError(f"block {block} is released and has no reference left")
        for block in reversed(block_ids):
            self._references[block] -= 1
            self._num_shared -= self._references[block] == 1
            if self._references[block]:
                continue
            if block in self._cache:
                self._evictable[block] = None
            else:
                self._free.append(block)

    def _take(self) -> int:
        if self._free:
            return self._free.popleft()
        block = next(iter(self._evictable))
        del self._evictable[block]
        self._cache.forget(block)
        self.num_evicted += 1
        return block
