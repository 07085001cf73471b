"""The pool on a handful of blocks, with exact ids."""

import pytest

from pageloom.kv.block_pool import BlockAccountingError, BlockPool
from pageloom.kv.prefix_cache import PrefixCache, Root


def make_pool(num_blocks: int, cached: dict[int, tuple[int, ...]] | None = None) -> BlockPool:
    """A pool whose blocks `cached` hold the given tokens, once they are allocated."""
    cache = PrefixCache(block_size=2)
    for block, tokens in (cached or {}).items():
        key = cache.key(Root(), tokens, 0)
        assert key
        cache.insert(key, block)
    return BlockPool(num_blocks, cache)


def test_fresh_blocks_are_given_in_order() -> None:
    pool = make_pool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.num_used == 3
    assert pool.reuse_order() == (3,)


def test_too_many_blocks_give_none_and_change_nothing() -> None:
    pool = make_pool(4)
    pool.allocate(2)
    assert pool.allocate(3) is None
    assert pool.reuse_order() == (2, 3)
    assert pool.allocate(2) == [2, 3]


def test_the_tail_of_a_table_is_freed_first() -> None:
    pool = make_pool(4)
    pool.release(pool.allocate(4) or [])
    assert pool.reuse_order() == (3, 2, 1, 0)


def test_free_blocks_are_used_before_a_cached_one_is_evicted() -> None:
    pool = make_pool(4, cached={0: (5, 6)})
    pool.release(pool.allocate(2) or [])
    assert pool.reuse_order() == (2, 3, 1, 0)


def test_the_least_recently_released_cached_block_is_evicted_first() -> None:
    pool = make_pool(3, cached={0: (1, 1), 1: (2, 2), 2: (3, 3)})
    pool.allocate(3)
    for block in (1, 0, 2):
        pool.release([block])
    assert pool.reuse_order() == (1, 0, 2)
    pool.share([1])
    pool.release([1])
    assert pool.reuse_order() == (0, 2, 1)
    assert pool.allocate(1) == [0]


def test_an_evicted_block_is_not_found_any_more() -> None:
    cache = PrefixCache(block_size=2)
    pool = BlockPool(1, cache)
    pool.allocate(1)
    key = cache.key(Root(), (7, 8), 0)
    assert key
    cache.insert(key, 0)
    pool.release([0])
    assert [link.block_id for link in cache.match(Root(), (7, 8, 9))] == [0]
    pool.allocate(1)
    assert cache.match(Root(), (7, 8, 9)) == ()


def test_a_shared_block_is_given_back_by_its_last_owner_only() -> None:
    pool = make_pool(2, cached={0: (1, 2)})
    pool.allocate(1)
    pool.share([0])
    assert pool.num_shared == 1
    pool.release([0])
    assert (pool.num_shared, pool.num_used) == (0, 1)
    pool.release([0])
    assert pool.num_used == 0


def test_blocks_about_to_be_shared_do_not_count_as_available() -> None:
    pool = make_pool(3, cached={0: (1, 2)})
    pool.release(pool.allocate(1) or [])
    assert pool.can_allocate(3)
    assert pool.can_allocate(2, keeping=[0])
    assert not pool.can_allocate(3, keeping=[0])


@pytest.mark.parametrize(
    "released",
    [[0, 0], [2], [7], [-1], [0, 2]],
    ids=["twice at once", "free already", "beyond the pool", "negative", "one of two is free"],
)
def test_a_wrong_release_is_detected_and_changes_nothing(released: list[int]) -> None:
    pool = make_pool(3)
    pool.allocate(2)
    with pytest.raises(BlockAccountingError):
        pool.release(released)
    assert [pool.references(block) for block in range(3)] == [1, 1, 0]
    assert pool.reuse_order() == (2,)


def test_a_block_of_unknown_content_cannot_be_shared() -> None:
    pool = make_pool(2)
    pool.allocate(1)
    with pytest.raises(BlockAccountingError):
        pool.share([0])
    assert pool.references(0) == 1
