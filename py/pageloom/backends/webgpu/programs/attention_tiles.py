"""How the gpu variant of attention cuts its work: pure arithmetic of workgroups and of the memory that they share."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.elements import ElementKind

DECODE_WORKGROUP = 256
DECODE_LANES = 4
"""Threads that share the score of a key."""
DECODE_HEADS = 4
"""Query heads that a decode workgroup serves at most: its sums stay in registers."""
STATISTICS = 16
"""Threads that share a maximum or a total in the decode programs."""
PREFETCHED = 8
"""Values that a decode thread asks for at once."""

PREFILL_ROWS = 64
PREFILL_OWN_ROWS = 2
"""Query rows of a prefill thread; 8 threads share each row. More would spill where heads are wide."""
PREFERRED_BYTES = 24576
"""Workgroup memory that leaves room for several workgroups on a GPU's core."""

GROUP_BYTES: dict[ElementKind, int] = {
    "f32": 16,
    "f16": 8,
    "packed_f16": 8,
    "bf16": 8,
    "int8": 4,
    "int4": 4,
    "f8": 4,
}
"""Bytes of four channels as the prefill program stages them."""


def wide_groups(kind: ElementKind) -> int:
    """Groups of four channels that a decode thread loads at once."""
    return 1 if kind == "f32" else 2


def even_parts(count: int, most: int) -> int:
    """The size of parts of at most `most` that `count` is cut into, the last being no larger."""
    return -(-count // -(-count // most))


def workgroup_memory(info: DeviceInfo) -> int:
    """What a workgroup should take at most."""
    return min(info.limits["maxComputeWorkgroupStorageSize"], PREFERRED_BYTES)


@dataclass(frozen=True, slots=True)
class DecodeTile:
    """A decode workgroup: `split` keys for up to `heads_per_group` query heads of one KV head."""

    split: int
    heads_per_group: int
    workgroup_bytes: int

    def parts(self, form: AttentionForm) -> int:
        """Workgroups that share the query heads of one KV head."""
        return -(-form.group // self.heads_per_group)

    def splits(self, form: AttentionForm, max_kv_len: int) -> int:
        """Splits that cover every key a query may see, wherever its window starts."""
        splits = -(-max_kv_len // self.split)
        if form.window > 0:
            splits = min(splits, -(-(form.window - 1) // self.split) + 1)
        return splits


def decode_split(form: AttentionForm) -> int:
    """Keys of a decode workgroup: fewer of long rows, so that a thread has as much to load."""
    return 128 if form.head_size <= 128 else 64


def decode_tile(form: AttentionForm, info: DeviceInfo) -> DecodeTile:
    """The most heads that fit the workgroup memory; where one does not, the tile of one, for its needs to be told."""
    tiles = [_decode_tile(form, even_parts(form.group, heads)) for heads in range(DECODE_HEADS, 0, -1)]
    return next((tile for tile in tiles if tile.workgroup_bytes <= workgroup_memory(info)), tiles[-1])


def _decode_tile(form: AttentionForm, heads: int) -> DecodeTile:
    split = decode_split(form)
    stripes = DECODE_WORKGROUP // (form.v_head_size // 4 // wide_groups(form.value_kind))
    queries = 4 * heads * form.head_size
    slots = 4 * stripes * -(-split // stripes)
    scores = 4 * heads * split * (DECODE_LANES + 2)
    sums = 4 * stripes * form.v_head_size
    statistics = 2 * 4 * STATISTICS * heads
    return DecodeTile(split, heads, queries + slots + scores + sums + statistics)


def reduce_workgroup_bytes(form: AttentionForm, splits: int) -> int:
    """Workgroup memory of the program that joins the splits."""
    columns = form.v_head_size // 4
    return 2 * 4 * splits + 4 * STATISTICS + 16 * (DECODE_WORKGROUP // columns) * columns


def partials_bytes(form: AttentionForm, max_sequences: int, max_kv_len: int) -> int:
    """Bytes of scratch memory between the two decode programs; 0 where one split serves all."""
    splits = DecodeTile(decode_split(form), 1, 0).splits(form, max_kv_len)
    return 0 if splits == 1 else 4 * max_sequences * form.num_heads * splits * (form.v_head_size + 4)


def query_tile_tokens(form: AttentionForm) -> int:
    """Tokens of a query tile: enough to fill a prefill workgroup's rows with the query heads of one KV head."""
    return max(16, PREFILL_ROWS // form.group)


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """A prefill workgroup: a query tile times up to `heads_per_group` heads, `keys` keys at a time."""

    heads_per_group: int
    keys: int
    threads: int
    workgroup_bytes: int

    def parts(self, form: AttentionForm) -> int:
        """Workgroups that share the query heads of one KV head."""
        return -(-form.group // self.heads_per_group)


def prefill_tile(form: AttentionForm, info: DeviceInfo, tile_tokens: int) -> PrefillTile:
    """The most keys that fit the workgroup memory; where 8 do not, the tile of 8, for its needs to be told."""
    tiles = [_prefill_tile(form, tile_tokens, keys) for keys in (32, 16, 8)]
    return next((tile for tile in tiles if tile.workgroup_bytes <= workgroup_memory(info)), tiles[-1])


def _prefill_tile(form: AttentionForm, tile_tokens: int, keys: int) -> PrefillTile:
    heads = even_parts(form.group, max(1, PREFILL_ROWS // tile_tokens))
    blocks = -(-tile_tokens * heads // PREFILL_OWN_ROWS)
    staged = GROUP_BYTES[form.key_kind] * keys * (form.head_size // 4 + 1)
    if form.value_kind != form.key_kind:
        staged += GROUP_BYTES[form.value_kind] * keys * (form.head_size // 4 + 1)
    weights = 4 * blocks * PREFILL_OWN_ROWS * (keys + 1)
    shares = 4 * blocks * PREFILL_OWN_ROWS * 8
    return PrefillTile(heads, keys, 8 * blocks, 4 * keys + staged + weights + shares)
