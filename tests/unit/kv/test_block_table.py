"""One request's table: grown, shared, committed, released."""

import pytest

from pageloom.kv.block_pool import BlockAccountingError, BlockPool
from pageloom.kv.block_table import BlockTable, blocks_for
from pageloom.kv.prefix_cache import PrefixCache, Root


class Pool:
    """Tables over one pool of blocks of 4."""

    def __init__(self, num_blocks: int) -> None:
        self.cache = PrefixCache(block_size=4)
        self.pool = BlockPool(num_blocks, self.cache)

    def table(self) -> BlockTable:
        return BlockTable(self.pool, self.cache, Root())


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_cover_the_tokens_and_no_more(tokens: int, blocks: int) -> None:
    assert blocks_for(tokens, 4) == blocks
    table = Pool(4).table()
    assert table.reserve(tokens)
    assert len(table.block_ids) == blocks


def test_a_table_is_prefilled_and_decoded_without_a_spare_block() -> None:
    """A prompt that ends just before, at and just after a block edge, then one token at a time."""
    for prompt in (3, 4, 5):
        table = Pool(8).table()
        table.reserve(prompt)
        for length in range(prompt + 1, 14):
            table.reserve(length)
            assert len(table.block_ids) == -(-length // 4)


def test_a_reservation_that_cannot_be_met_takes_nothing() -> None:
    pool = Pool(3)
    table = pool.table()
    table.reserve(4)
    assert not table.can_reserve(13)
    assert not table.reserve(13)
    assert table.block_ids == [0]
    assert table.can_reserve(12)
    assert pool.pool.num_used == 1


def test_only_full_committed_blocks_can_be_shared() -> None:
    pool = Pool(4)
    tokens = list(range(10))
    table = pool.table()
    table.reserve(10)
    table.commit(tokens, 3)
    assert pool.cache.match(Root(), tokens) == ()
    table.commit(tokens, 9)
    assert [link.block_id for link in pool.cache.match(Root(), tokens)] == [0, 1]


def test_an_adopted_prefix_counts_as_committed_and_is_not_paid_for() -> None:
    pool = Pool(3)
    tokens = list(range(10))
    first = pool.table()
    first.reserve(8)
    first.commit(tokens, 8)
    second = pool.table()
    prefix = pool.cache.match(second.root, tokens)
    assert second.can_reserve(10, prefix=prefix)
    assert not second.can_reserve(13, prefix=prefix)
    second.adopt(prefix)
    second.reserve(10)
    assert (second.block_ids, second.num_committed) == ([0, 1, 2], 8)
    assert pool.pool.num_shared == 2


def test_a_released_prefix_is_not_counted_twice() -> None:
    """An evictable block of the prefix is about to be shared: it is no room for the rest."""
    pool = Pool(2)
    tokens = list(range(5))
    first = pool.table()
    first.reserve(4)
    first.commit(tokens, 4)
    first.release()
    prefix = pool.cache.match(Root(), tokens)
    assert pool.table().can_reserve(8, prefix=prefix)
    assert not pool.table().can_reserve(9, prefix=prefix)


def test_release_gives_every_block_back_and_is_safe_to_repeat() -> None:
    pool = Pool(3)
    table = pool.table()
    table.reserve(12)
    table.release()
    table.release()
    assert pool.pool.reuse_order() == (2, 1, 0)


def test_committing_tokens_that_are_not_known_is_a_fault() -> None:
    table = Pool(2).table()
    table.reserve(8)
    with pytest.raises(BlockAccountingError):
        table.commit([1, 2, 3], 4)


def test_a_table_that_has_begun_cannot_adopt() -> None:
    pool = Pool(3)
    table = pool.table()
    table.reserve(1)
    with pytest.raises(BlockAccountingError):
        table.adopt(())


def test_the_chain_goes_on_behind_an_adopted_prefix() -> None:
    """A block behind a shared prefix is found behind that prefix only, never at the beginning of a prompt."""
    pool = Pool(4)
    tokens = list(range(10))
    first = pool.table()
    first.reserve(4)
    first.commit(tokens, 4)
    second = pool.table()
    second.adopt(pool.cache.match(second.root, tokens))
    second.reserve(8)
    second.commit(tokens, 8)
    assert [link.block_id for link in pool.cache.match(Root(), tokens)] == [0, 1]
    assert pool.cache.match(Root(), tokens[4:]) == ()
