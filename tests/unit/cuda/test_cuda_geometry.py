"""Tiles and splits: pure arithmetic."""

from __future__ import annotations

import pytest

from pageloom.attention.cache_storage import CacheStorage
from pageloom.backends.cuda.geometry import (
    MOST_SPLITS,
    Geometry,
    parts_of,
    power_of_two,
    splits_of,
    tile_of,
    value_parts,
)

HALF = CacheStorage("float16", "NONE")
INT8 = CacheStorage("int8", "PER_TENSOR")
INT4 = CacheStorage("int4", "PER_CHANNEL")


def geometry(heads: tuple[int, int] = (32, 8), head_size: int = 128, storage: CacheStorage = HALF) -> Geometry:
    return Geometry("float16", *heads, head_size, head_size, 0.1, storage, storage, "paged", block_size=16)


@pytest.mark.parametrize(("number", "least", "power"), [(1, 1, 1), (3, 1, 4), (16, 1, 16), (17, 1, 32), (5, 16, 16)])
def test_powers_of_two_hold_their_number(number: int, least: int, power: int) -> None:
    assert power_of_two(number, least) == power


def test_the_parts_of_a_row_hold_all_its_channels() -> None:
    for head_size in (*range(8, 513, 8), 576):
        for storage in (HALF, INT8, INT4):
            parts = parts_of(head_size, storage)
            assert parts.first + parts.rest >= head_size
            assert parts.first >= 16


def test_codes_are_split_in_even_and_odd_channels_where_tensor_cores_need_it() -> None:
    assert (parts_of(64, INT4).paired, parts_of(64, INT8).paired) == (4, 8)
    assert value_parts(geometry(storage=INT8)).paired == 8
    assert value_parts(geometry()).count == 1


@pytest.mark.parametrize(
    ("units", "keys", "splits"),
    [(8, 4096, 16), (64, 4096, 4), (256, 2048, 1), (8, 200, 1), (1, 10**6, 32), (600, 4096, 1), (50, 4096, 5)],
)
def test_splits_fill_the_device_but_no_split_is_short(units: int, keys: int, splits: int) -> None:
    assert splits_of(264, units, keys, 256) == splits


@pytest.mark.parametrize("storage", [HALF, INT8])
@pytest.mark.parametrize("sequences", [1, 3, 8, 33, 500])
@pytest.mark.parametrize("kv_bound", [1, 64, 65, 512, 4096, 100_000])
def test_a_decode_has_a_few_programs_on_each_multiprocessor_and_none_without_a_step(
    storage: CacheStorage, sequences: int, kv_bound: int
) -> None:
    shape = geometry(storage=storage)
    tile = tile_of(shape, sequences=sequences, query_bound=1, kv_bound=kv_bound, multiprocessors=132)
    assert tile.by_warp
    assert tile.block_n // tile.num_warps >= 16
    assert 1 <= tile.splits <= MOST_SPLITS
    programs = tile.splits * sequences * shape.kv_num_heads
    assert tile.splits == 1 or (programs <= 4 * 132 and kv_bound // tile.splits >= tile.block_n)


def test_with_splits_of_its_own_a_decode_is_cut_alike_whatever_the_batch() -> None:
    tiles = {
        tile_of(geometry(), sequences=sequences, query_bound=1, kv_bound=2048, multiprocessors=132, splits=8)
        for sequences in (1, 4, 5, 64)
    }
    assert [tile.splits for tile in tiles] == [8]
    assert {tile.keys_ahead for tile in tiles} == {0}


@pytest.mark.parametrize("storage", [HALF, INT8, INT4])
@pytest.mark.parametrize("query_bound", [1, 4, 17, 500])
@pytest.mark.parametrize("heads", [(32, 8), (9, 3), (64, 1), (7, 7)])
def test_a_tile_has_a_power_of_two_of_rows_and_keeps_what_splits_need(
    storage: CacheStorage, query_bound: int, heads: tuple[int, int]
) -> None:
    shape = geometry(heads, storage=storage)
    tile = tile_of(shape, sequences=2, query_bound=query_bound, kv_bound=3000, multiprocessors=132)
    for size in (tile.block_m, tile.block_n, tile.rows, tile.merged):
        assert size == power_of_two(size)
    assert tile.rows >= min(tile.block_m, query_bound * shape.group)
    assert tile.splits == 1 or query_bound * shape.group <= 64


@pytest.mark.parametrize("storage", [INT8, INT4])
def test_values_in_two_parts_stay_off_the_warp_group_form_and_its_copies_ahead(storage: CacheStorage) -> None:
    for query_bound in (1, 16, 300):
        tile = tile_of(
            geometry(storage=storage), sequences=1, query_bound=query_bound, kv_bound=500, multiprocessors=132
        )
        assert tile.block_m < 64
        assert tile.by_warp or tile.num_stages == 1 or tile.block_m == 16
