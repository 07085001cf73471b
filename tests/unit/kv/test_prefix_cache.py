"""Blocks are found by content and by nothing else."""

import sys

from pageloom.kv.prefix_cache import PrefixCache, Root

ROOT = Root()


def enter(cache: PrefixCache, root: Root, token_ids: tuple[int, ...], blocks: list[int]) -> None:
    """Enter the full blocks of `token_ids` as one chain."""
    parent: Root | int = root
    for index, block in enumerate(blocks):
        key = cache.key(parent, token_ids, index)
        assert key is not None
        parent = cache.insert(key, block)


def found(cache: PrefixCache, root: Root, token_ids: tuple[int, ...]) -> list[int]:
    return [link.block_id for link in cache.match(root, token_ids)]


def test_the_longest_cached_chain_is_found() -> None:
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, (1, 2, 3, 4), [5, 3])
    assert found(cache, ROOT, (1, 2, 3, 4, 9)) == [5, 3]
    assert found(cache, ROOT, (1, 2, 9, 4, 9)) == [5]
    assert found(cache, ROOT, (9, 2, 3, 4, 9)) == []


def test_the_last_token_is_always_left_to_compute() -> None:
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, (1, 2, 3, 4), [5, 3])
    assert found(cache, ROOT, (1, 2, 3, 4)) == [5]
    assert found(cache, ROOT, (1, 2)) == []
    assert found(cache, ROOT, (1,)) == []


def test_equal_tokens_behind_another_beginning_are_another_content() -> None:
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, (1, 2, 7, 7), [0, 1])
    enter(cache, ROOT, (3, 4), [2])
    assert found(cache, ROOT, (3, 4, 7, 7, 9)) == [2]


def test_colliding_hashes_share_nothing() -> None:
    modulus = sys.hash_info.modulus
    mine, other = (5, 6), (5 + modulus, 6 + modulus)
    assert hash(mine) == hash(other)
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, mine, [0])
    assert found(cache, ROOT, (*other, 1)) == []
    enter(cache, ROOT, other, [1])
    assert found(cache, ROOT, (*mine, 1)) == [0]
    assert found(cache, ROOT, (*other, 1)) == [1]


def test_a_salt_never_meets_another_key_part() -> None:
    roots = [Root(), Root(salt=""), Root(salt="0"), Root(salt="None"), Root(request=0), Root(salt="0", request=0)]
    cache = PrefixCache(block_size=1)
    for block, root in enumerate(roots):
        assert found(cache, root, (4, 4)) == []
        enter(cache, root, (4,), [block])
    assert [found(cache, root, (4, 4)) for root in roots] == [[block] for block in range(len(roots))]
    parent = cache.match(Root(), (4, 4))[0].serial
    assert parent == 0
    assert found(cache, Root(salt="0"), (4, 4, 4)) == [2]


def test_the_first_block_of_a_content_stays_the_one_that_is_found() -> None:
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, (1, 2), [0])
    enter(cache, ROOT, (1, 2, 3, 4), [8, 9])
    assert found(cache, ROOT, (1, 2, 3, 4, 5)) == [0, 9]
    assert 8 not in cache


def test_what_is_behind_a_forgotten_block_is_not_found_even_if_its_content_comes_back() -> None:
    cache = PrefixCache(block_size=2)
    enter(cache, ROOT, (1, 2, 3, 4), [0, 1])
    cache.forget(0)
    assert found(cache, ROOT, (1, 2, 3, 4, 5)) == []
    enter(cache, ROOT, (1, 2), [6])
    assert found(cache, ROOT, (1, 2, 3, 4, 5)) == [6]
