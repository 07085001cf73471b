"""The block table of one request: which physical block holds which of its positions."""

from __future__ import annotations

from collections.abc import Sequence

from pageloom.kv.block_pool import BlockAccountingError, BlockPool
from pageloom.kv.prefix_cache import BlockKey, CachedBlock, PrefixCache, Root


def blocks_for(num_tokens: int, block_size: int) -> int:
    """How many blocks `num_tokens` positions take."""
    return -(-num_tokens // block_size)


class BlockTable:
    """Entry i holds positions [i * block_size, (i + 1) * block_size). Grows at its end and is released as a whole.

    The first `num_committed` tokens have been computed for sure and their ids are known; of those, every full block is
    entered in the prefix cache, so that others may share it. What is behind them is private to this table.
    """

    def __init__(self, pool: BlockPool, cache: PrefixCache, root: Root) -> None:
        self._pool = pool
        self._cache = cache
        self.root = root
        self._parent: Root | int = root
        self._num_entered = 0
        self.block_ids: list[int] = []
        self.num_committed = 0

    def can_reserve(self, num_tokens: int, *, prefix: Sequence[CachedBlock] = ()) -> bool:
        """Whether `adopt(prefix)` and then `reserve(num_tokens)` would succeed. Changes nothing."""
        missing = self._missing(num_tokens) - len(prefix)
        return self._pool.can_allocate(missing, keeping=[link.block_id for link in prefix])

    def successor(self) -> BlockTable:
        """An empty table of the same chain, to begin again with."""
        return BlockTable(self._pool, self._cache, self.root)

    def adopt(self, prefix: Sequence[CachedBlock]) -> None:
        """Begin the (empty) table with the shared blocks of a cached chain."""
        if self.block_ids:
            raise BlockAccountingError("only an empty block table can begin with shared blocks")
        self._pool.share([link.block_id for link in prefix])
        self.block_ids.extend(link.block_id for link in prefix)
        if prefix:
            self._parent = prefix[-1].serial
        self._num_entered = len(prefix)
        self.num_committed = len(prefix) * self._cache.block_size

    def reserve(self, num_tokens: int) -> bool:
        """Own blocks for positions [0, num_tokens); False, and no change, where the pool cannot give them."""
        missing = self._missing(num_tokens)
        if missing <= 0:
            return True
        blocks = self._pool.allocate(missing)
        if blocks is None:
            return False
        self.block_ids.extend(blocks)
        return True

    def commit(self, token_ids: Sequence[int], num_tokens: int) -> None:
        """Say that the K and V of the first `num_tokens` of `token_ids` are computed."""
        self.num_committed = num_tokens
        while (self._num_entered + 1) * self._cache.block_size <= num_tokens:
            key = self.next_key(token_ids)
            if key is None:
                raise BlockAccountingError(f"{num_tokens} tokens are committed of {len(token_ids)} that are known")
            self._parent = self._cache.insert(key, self.block_ids[self._num_entered])
            self._num_entered += 1

    def next_key(self, token_ids: Sequence[int]) -> BlockKey | None:
        """The content of the first full block that is not committed yet; None where `token_ids` does not fill it."""
        return self._cache.key(self._parent, token_ids, self._num_entered)

    def release(self) -> None:
        """Give all blocks back. The table is not used again."""
        self._pool.release(self.block_ids)
        self.block_ids = []

    def _missing(self, num_tokens: int) -> int:
        return blocks_for(num_tokens, self._cache.block_size) - len(self.block_ids)
