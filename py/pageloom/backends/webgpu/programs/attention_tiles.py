"""How the gpu variant of attention cuts a prefill: pure arithmetic of workgroups and of the memory that they share."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.elements import ElementKind

OWN_ROWS = 4
"""Query rows of a prefill thread, for a few columns of the output: its sums stay in registers."""
PREFERRED_BYTES = 24576
"""Workgroup memory that leaves room for several workgroups on a GPU's core."""

LOAD_BYTES: dict[ElementKind, int] = {
    "f32": 16,
    "f16": 16,
    "packed_f16": 16,
    "bf16": 16,
    "int8": 8,
    "int4": 4,
    "f8": 8,
}
"""Bytes of a load of `wide_groups` groups of four channels."""


def wide_groups(kind: ElementKind) -> int:
    """Groups of four channels that a thread loads at once."""
    return 1 if kind == "f32" else 2


def even_parts(count: int, most: int) -> int:
    """The size of parts of at most `most` that `count` is cut into, the last being no larger."""
    return -(-count // -(-count // most))


def workgroup_memory(info: DeviceInfo) -> int:
    """What a workgroup should take at most."""
    return min(info.limits["maxComputeWorkgroupStorageSize"], PREFERRED_BYTES)


def prefill_rows(form: AttentionForm) -> int:
    """Query rows of a workgroup: fewer of long rows of values, of which more threads share each."""
    return 64 if form.v_head_size <= 256 else 32


def query_tile_tokens(form: AttentionForm) -> int:
    """Tokens of a query tile: enough to fill a prefill workgroup's rows with the query heads of one KV head."""
    return max(16, prefill_rows(form) // form.group)


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """A prefill workgroup: a query tile times up to `heads_per_group` heads, `keys` keys at a time, `span` threads to a
    query row."""

    heads_per_group: int
    keys: int
    span: int
    threads: int
    workgroup_bytes: int

    def parts(self, form: AttentionForm) -> int:
        """Workgroups that share the query heads of one KV head."""
        return -(-form.group // self.heads_per_group)


def prefill_tile(form: AttentionForm, info: DeviceInfo, tile_tokens: int) -> PrefillTile:
    """The most keys that fit the workgroup memory; where 8 do not, the tile of 8, for its needs to be told."""
    sizes = ((8, 32), (8, 16), (8, 8)) if form.v_head_size <= 128 else ((16, 32), (16, 16), (8, 8))
    tiles = [_prefill_tile(form, tile_tokens, span, keys) for span, keys in sizes]
    return next((tile for tile in tiles if tile.workgroup_bytes <= workgroup_memory(info)), tiles[-1])


def _prefill_tile(form: AttentionForm, tile_tokens: int, span: int, keys: int) -> PrefillTile:
    heads = even_parts(form.group, max(1, prefill_rows(form) // tile_tokens))
    blocks = -(-tile_tokens * heads // OWN_ROWS)

    def staged(kind: ElementKind, channels: int) -> int:
        return LOAD_BYTES[kind] * keys * (-(-channels // (4 * wide_groups(kind))) + 1)

    cached = staged(form.key_kind, form.head_size)
    if form.value_kind != form.key_kind:
        cached += staged(form.value_kind, form.v_head_size)
    weights_and_shares = 16 * (keys + span) * (blocks * OWN_ROWS // 4 + 1)
    return PrefillTile(heads, keys, span, span * blocks, 4 * keys + cached + weights_and_shares)
