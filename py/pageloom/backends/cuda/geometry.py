"""The static side of one attention call, and the tiles that a GPU runs it with: pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.tensors import DType

Lengths = Literal["paged", "prompt", "append", "chunk", "external", "fixed"]
"""Where the kernels find the lengths of a sequence; see `kernels.rows.sequence_lengths`."""
Sink = Literal["none", "zero", "given"]
Rotary = Literal["none", "half", "interleaved"]

WIDEST_PART = 512
PAIRED_BYTES = 8
"""Bits of the codes that are loaded two at a time, so that strides count pairs."""
SMALLEST_PART = 16
"""Tensor cores take 16 channels, or keys, at a time."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the kernels of a call are compiled for, whichever the operator.

    - `window`: visible keys, the own one included, 0 for no window; `block_size`: positions of a page, 0 for a cache
      that is not paged; `reciprocal`: whether codes are rounded from a product with 1 / scale.
    - `norm`, `rotary`...: what happens to Q and K before attention.
    """

    dtype: DType
    num_heads: int
    kv_num_heads: int
    head_size: int
    v_head_size: int
    scale: float
    key_storage: CacheStorage
    value_storage: CacheStorage
    lengths: Lengths
    block_size: int = 0
    softcap: float = 0.0
    window: int = 0
    causal: bool = True
    sink: Sink = "none"
    latent: bool = False
    norm: bool = False
    q_epsilon: float = 0.0
    k_epsilon: float = 0.0
    rotary: Rotary = "none"
    rotary_dim: int = 0
    rotary_offset: int = 0
    reciprocal: bool = False

    @property
    def group(self) -> int:
        """Query heads of one K/V head."""
        return self.num_heads // self.kv_num_heads

    @property
    def block_shift(self) -> int:
        """log2 of the positions of a page."""
        return self.block_size.bit_length() - 1 if self.block_size else 0

    @property
    def prepares_query(self) -> bool:
        """Whether Q as attention reads it differs from the input."""
        return self.norm or self.rotary != "none"


@dataclass(frozen=True, slots=True)
class Parts:
    """How the channels of a row go into tensor-core tiles: `first` and `rest` lanes; `paired` is the bits of a code
    whose parts are the even and the odd channels, or 0."""

    first: int
    rest: int
    paired: int

    @property
    def count(self) -> int:
        return 2 if self.rest else 1


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of an attention kernel's work: query rows and keys of a step, splits of the keys, rows that splits
    leave behind, and how a program is laid out; `by_warp` where each warp has keys of its own; `merged` splits are
    loaded at a time when they are merged; `keys_ahead` of a split are asked for before the kernel before has ended,
    which may be when `keys_left` are left of its own."""

    block_m: int
    block_n: int
    splits: int
    rows: int
    num_warps: int
    num_stages: int
    by_warp: bool = False
    merged: int = 1
    keys_ahead: int = 0
    keys_left: int = 0


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that holds `number`, at least `least`."""
    return max(least, 1 << max(0, number - 1).bit_length())


def parts_of(width: int, storage: CacheStorage) -> Parts:
    """The parts of rows of `width` channels."""
    if storage.element in ("int4", "int8"):
        half = power_of_two((width + 1) // 2, SMALLEST_PART)
        return Parts(half, half, paired=4 if storage.element == "int4" else PAIRED_BYTES)
    if width > WIDEST_PART:
        return Parts(WIDEST_PART, power_of_two(width - WIDEST_PART, SMALLEST_PART), paired=0)
    return Parts(power_of_two(width, SMALLEST_PART), 0, paired=0)


def value_parts(geometry: Geometry) -> Parts:
    """Of V: one part, of any width, but for int4 and int8."""
    if geometry.value_storage.element in ("int4", "int8"):
        return parts_of(geometry.v_head_size, geometry.value_storage)
    return Parts(power_of_two(geometry.v_head_size, SMALLEST_PART), 0, paired=0)


MOST_SPLITS = 32
DECODE_ROWS = 16
DECODE_WIDTH = 256
"""Query rows, of the heads of a group, and channels, up to which each warp has keys of its own: what it sums stays in
its registers."""
LEAST_KEYS = 64
"""Of a split in a decode."""
AT_ONCE = 2**30
"""Keys that no split has."""
MERGED_EACH = 4096
"""Numbers of splits' sums that the registers of a warp hold."""
FEW_ROWS = 64
"""Query rows up to which keys are split."""
MOST_ROWS_OF_PAIRS = 32
"""Query rows of a tile where codes are in two parts. With 64, where Triton 3.6 turns to the warp-group form of the
tensor cores, V came out wrong on an H200 next to K that is copied ahead; so nothing is, above 16."""


def splits_of(programs: int, units: int, kv_bound: int, least_keys: int) -> int:
    """Splits of the keys of each of `units` that make up to `programs`, none below `least_keys`."""
    return max(1, min(programs // units, kv_bound // least_keys, MOST_SPLITS))


def takes_decode(geometry: Geometry, query_bound: int) -> bool:
    """Whether a call of at most `query_bound` new tokens a sequence goes to the kernel of few query rows."""
    return query_bound * geometry.group <= DECODE_ROWS and _width(geometry) <= DECODE_WIDTH


def tile_of(
    geometry: Geometry,
    *,
    sequences: int,
    query_bound: int,
    kv_bound: int,
    multiprocessors: int,
    few_rows: bool = True,
    splits: int | None = None,
) -> Tile:
    """For at most `query_bound` new tokens and `kv_bound` keys in each of `sequences`; of the kernel of few query rows
    only where `few_rows` allows it, and there with `splits` where the keys are long enough, whatever `sequences`, or as
    many as are best.

    The numbers are those that an H200 was fastest with.
    """
    query_rows, width = query_bound * geometry.group, _width(geometry)
    if few_rows and takes_decode(geometry, query_bound):
        units = sequences * geometry.kv_num_heads if splits is None else multiprocessors
        tile = _decode_tile(geometry, query_rows, units, kv_bound, multiprocessors)
        if splits is not None:
            # In a model the kernels before it let none start early, and to ask ahead would only take its time.
            tile = replace(tile, splits=splits_of(splits, 1, kv_bound, LEAST_KEYS), keys_ahead=0)
        return tile
    in_pairs = value_parts(geometry).count > 1 or geometry.key_storage.element == "int8"
    if query_rows <= FEW_ROWS:
        block_m = power_of_two(query_rows, 16)
        if in_pairs:
            block_m = min(block_m, MOST_ROWS_OF_PAIRS)
        block_n = 64 if width <= 256 else 32 if width <= 512 else 16
        tiles = -(-query_rows // block_m)
        splits = splits_of(2 * multiprocessors, sequences * geometry.kv_num_heads * tiles, kv_bound, block_n)
        num_stages = 1 if in_pairs and block_m > 16 else 2
        rows = power_of_two(min(query_rows, block_m))
        return Tile(block_m, block_n, splits, rows, 4, num_stages, merged=_merged(rows, width, 4))
    if in_pairs:
        return Tile(MOST_ROWS_OF_PAIRS, 64 if width <= 256 else 16, 1, MOST_ROWS_OF_PAIRS, 4, 1)
    if width <= 64:
        return Tile(128, 64, 1, 128, 4, 3)
    if width <= 128:
        return Tile(128, 64, 1, 128, 8, 3)
    if width <= 256:
        return Tile(64, 64, 1, 64, 8, 2)
    return Tile(16, 32 if width <= 512 else 16, 1, 16, 4, 1)


def _width(geometry: Geometry) -> int:
    keys, values = parts_of(geometry.head_size, geometry.key_storage), value_parts(geometry)
    return max(keys.first * keys.count, values.first * values.count)


def _decode_tile(geometry: Geometry, query_rows: int, units: int, kv_bound: int, multiprocessors: int) -> Tile:
    """Where there are few units, two warps share a split, since many splits take long to merge; where there are many,
    a warp by itself waits for none. Codes of 8 bits keep it busier, so that more of them run at once.

    Few units leave what the next kernel fetches early in the L2 cache. Many drive it out, and only the lengths and the
    pages, which come with its first key, are worth it.
    """
    rows = power_of_two(query_rows)
    keys_ahead, keys_left = 1, AT_ONCE
    if _width(geometry) > 128:
        block_n, num_warps, num_stages, programs = 32, 2, 3, 2
    elif 4 * units < multiprocessors:
        block_n, num_warps, num_stages, programs = 64, 2, 3, 1
        keys_ahead = keys_left = 64
    elif geometry.key_storage.element == geometry.value_storage.element == "int8":
        block_n, num_warps, num_stages, programs = 32, 1, 3, 4
    else:
        block_n, num_warps, num_stages, programs = 32, 1, 4, 2
    splits = splits_of(programs * multiprocessors, units, kv_bound, LEAST_KEYS)
    merged = _merged(rows, _width(geometry), num_warps)
    return Tile(
        max(rows, 8),
        block_n,
        splits,
        rows,
        num_warps,
        num_stages,
        by_warp=True,
        merged=merged,
        keys_ahead=keys_ahead,
        keys_left=keys_left,
    )


def _merged(rows: int, width: int, num_warps: int) -> int:
    return max(1, min(16, MERGED_EACH * num_warps // (rows * width)))
