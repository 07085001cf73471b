"""Full blocks, found again by their content.

A block's K and V depend on its own tokens and on every token before them, so cached blocks form chains:

    Root(salt) --(t0 .. t15)--> serial 7 --(t16 .. t31)--> serial 9

A chain's link is looked up by the pair (what comes before, the block's tokens). What comes before is the serial of the
previous link, never reused, or a `Root`. The dictionary hashes that pair and then compares it, so a hash collision
cannot hand out a block of other content, and a key part of one kind never equals one of another kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Root:
    """Where a chain begins. Requests share blocks only below equal roots.

    `salt` is the caller's `cache_salt`; `request` confines the chain to one request, by its arrival number.
    """

    salt: str | None = None
    request: int | None = None


@dataclass(frozen=True, slots=True)
class BlockKey:
    """The content of a full block: the chain before it and its own tokens."""

    parent: Root | int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """A link of a chain and the block that holds its K and V."""

    serial: int
    block_id: int


class PrefixCache:
    """The links of all chains, by content and by block."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._links: dict[BlockKey, CachedBlock] = {}
        self._keys: dict[int, BlockKey] = {}
        self._next_serial = 0

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def serial_of(self, block_id: int) -> int | None:
        """Which link the block holds: a serial stands for one content and is never given again. None where there is
        none."""
        key = self._keys.get(block_id)
        return None if key is None else self._links[key].serial

    def key(self, parent: Root | int, token_ids: Sequence[int], index: int) -> BlockKey | None:
        """The key of block `index` of a sequence; None where its tokens do not fill the block."""
        start = index * self.block_size
        if start + self.block_size > len(token_ids):
            return None
        return BlockKey(parent, tuple(token_ids[start : start + self.block_size]))

    def match(self, root: Root, token_ids: Sequence[int]) -> tuple[CachedBlock, ...]:
        """The longest cached chain that `token_ids` begins with, first block first. Changes nothing.

        The last token is never covered: its next-token distribution has to be computed.
        """
        links: list[CachedBlock] = []
        while (key := self.next_key(root, token_ids, links)) and (link := self._links.get(key)):
            links.append(link)
        return tuple(links)

    def next_key(self, root: Root, token_ids: Sequence[int], prefix: Sequence[CachedBlock]) -> BlockKey | None:
        """The content that would have to be cached for `match` to go on behind `prefix`; None at its end."""
        if len(prefix) >= (len(token_ids) - 1) // self.block_size:
            return None
        return self.key(prefix[-1].serial if prefix else root, token_ids, len(prefix))

    def insert(self, key: BlockKey, block_id: int) -> int:
        """Enter a block that holds K and V of `key`; returns the serial by which the chain goes on.

        Where another block has that content already, it stays the one that is found, and `block_id` is not entered:
        block tables are append-only, so a block is never exchanged for its twin.
        """
        link = self._links.get(key)
        if link is None:
            link = CachedBlock(self._next_serial, block_id)
            self._next_serial += 1
            self._links[key] = link
            self._keys[block_id] = key
        return link.serial

    def forget(self, block_id: int) -> None:
        """Take a block out before its content is overwritten. Links behind it can no longer be reached."""
        del self._links[self._keys.pop(block_id)]
