"""Which decode program runs and how it cuts its work: pure arithmetic of what a workgroup holds."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.backends.webgpu.device import INTEGER_DOTS, DeviceInfo
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_matrices import matrices_tile, why_not_matrices
from pageloom.backends.webgpu.programs.attention_tiles import even_parts, wide_groups, workgroup_memory
from pageloom.backends.webgpu.programs.decode_tile import HEADS, DecodeTile

WORKGROUP = 256
LANES = 4
"""Threads that share the score of a key."""
STATISTICS = 16
"""Threads that share a maximum or a total."""
PREFETCHED = 8
"""Values that a thread asks for at once."""
REDUCE_WORKGROUP = 256

MAX_LANES = 32
MAX_LOADS = 2
"""Loads of a K or V row by one thread: the query and the sums of as many channels stay in registers."""
INTEGER_CODES = ("int8", "int4")
"""Kinds of cache that can be met by products of bytes."""


@dataclass(frozen=True, slots=True)
class SubgroupsCut:
    """How decodes within subgroups cut their work: `keys_per_step` rows, which lie in one block, are asked for at once;
    splits of a sequence shorter than `SHORT_LENGTH` have `short_split` keys, those of a longer one `long_split`."""

    workgroup_size: int
    keys_per_step: int
    short_split: int
    long_split: int


OF_FLOATS = SubgroupsCut(workgroup_size=128, keys_per_step=8, short_split=64, long_split=256)
OF_CODES = SubgroupsCut(workgroup_size=64, keys_per_step=16, short_split=64, long_split=256)
"""Where K and V are int8 or int4: rows are short, so more of them are on their way at a time."""


def decode_tile(form: AttentionForm, info: DeviceInfo) -> DecodeTile:
    """The tile of the fastest program that can run."""
    if why_not_matrices(form, info) is None:
        return matrices_tile(form)
    if why_not_subgroups(form, info) is None:
        return _subgroups_tile(form, info)
    tiles = [_workgroup_tile(form, even_parts(form.group, heads)) for heads in range(HEADS, 0, -1)]
    # Where not even one head fits the memory, its needs are to be told.
    return next((tile for tile in tiles if tile.workgroup_bytes <= workgroup_memory(info)), tiles[-1])


def why_not_subgroups(form: AttentionForm, info: DeviceInfo) -> str | None:
    """The reason why a decode cannot exchange scores within subgroups, or None."""
    if not info.subgroup_min_size:
        return info.subgroups_refused or "the device lacks subgroups"
    if form.latent:
        return "rows of a latent cache are too long for the registers of a subgroup"
    lanes, rows = _lanes(form, info), _row_loads(form)
    if max(rows) > MAX_LOADS * lanes:
        return (
            f"a row of head size {form.head_size} takes {max(rows)} loads, of which {lanes} threads of a subgroup (at "
            f"least {info.subgroup_min_size}) take the same number, and at most {MAX_LOADS} each"
        )
    if lanes < (heads := _numbered_heads(form)):
        return (
            f"a row of head size {form.head_size} takes {max(rows)} loads, too few for its {lanes} threads to have one "
            f"for each of {heads} query heads"
        )
    return None


def _numbered_heads(form: AttentionForm) -> int:
    """Query heads of a workgroup, rounded up to a power of two."""
    return 1 << (even_parts(form.group, HEADS) - 1).bit_length()


def why_not_integer_dots(form: AttentionForm, info: DeviceInfo) -> str | None:
    """The reason why a decode within subgroups cannot meet the codes of a quantised cache by products of bytes, or
    None."""
    if not info.has_integer_dots:
        return f"the device lacks {INTEGER_DOTS}"
    if form.output_kind == "f32":
        return "queries and weights in 16 bits are not as exact as an output in float32"
    return None


def decodes_without(form: AttentionForm, info: DeviceInfo) -> dict[str, str]:
    """What would make decodes faster, and the reason why they do without it."""
    without: dict[str, str] = {}
    kinds = {form.key_kind, form.value_kind}
    if "int8" in kinds:
        if (reason := why_not_matrices(form, info)) is None:
            return {}
        without["matrices of bytes"] = reason
    if (reason := why_not_subgroups(form, info)) is not None:
        return without | {"subgroups": reason}
    if not kinds.isdisjoint(INTEGER_CODES) and (reason := why_not_integer_dots(form, info)) is not None:
        without["integer dots"] = reason
    return without


def _row_loads(form: AttentionForm) -> list[int]:
    """Loads of a K row and of a V row."""
    return [form.head_size // 4 // wide_groups(kind) for kind in (form.key_kind, form.value_kind)]


def _lanes(form: AttentionForm, info: DeviceInfo) -> int:
    """Threads that share a row: the most that every driver's subgroups hold, each with the same number of loads."""
    lanes = MAX_LANES
    while lanes > min(info.subgroup_min_size, MAX_LANES) or any(row % lanes for row in _row_loads(form)):
        lanes //= 2
    return lanes


def _subgroups_tile(form: AttentionForm, info: DeviceInfo) -> DecodeTile:
    lanes = _lanes(form, info)
    heads_per_group = even_parts(form.group, HEADS)
    heads = _numbered_heads(form)
    cut = OF_CODES if {form.key_kind, form.value_kind} <= {*INTEGER_CODES} else OF_FLOATS
    teams = cut.workgroup_size // lanes
    statistics = 2 * 4 * teams * heads
    sums = 4 * teams * form.head_size
    dots = why_not_integer_dots(form, info) is None
    # Sums of all heads are joined at once where they fit, and one head after another where they do not.
    merged = next(
        merged for merged in (heads, 1) if merged == 1 or merged * sums + statistics <= workgroup_memory(info)
    )
    step = teams * cut.keys_per_step
    short_split, long_split = (-(-split // step) * step for split in (cut.short_split, cut.long_split))
    return DecodeTile(
        template="paged_attention/decode_subgroups.wgsl.j2",
        heads_per_group=heads_per_group,
        workgroup_size=cut.workgroup_size,
        workgroup_bytes=merged * sums + statistics,
        short_split=short_split,
        long_split=long_split,
        own={
            "lanes": lanes,
            "keys_per_step": cut.keys_per_step,
            "merged": merged,
            "key_dots": dots and form.key_kind in INTEGER_CODES,
            "value_dots": dots and form.value_kind in INTEGER_CODES,
        },
        takes_runs=True,
    )


def _workgroup_tile(form: AttentionForm, heads: int) -> DecodeTile:
    # Fewer keys of long rows, so that a thread has as much to load.
    split = 128 if form.head_size <= 128 else 64
    stripes = WORKGROUP // (form.v_head_size // 4 // wide_groups(form.value_kind))
    queries = 4 * heads * form.head_size
    slots = 4 * stripes * -(-split // stripes)
    scores = 4 * heads * split * (LANES + 2)
    sums = 4 * stripes * form.v_head_size
    statistics = 2 * 4 * STATISTICS * heads
    return DecodeTile(
        template="paged_attention/decode.wgsl.j2",
        heads_per_group=heads,
        workgroup_size=WORKGROUP,
        workgroup_bytes=queries + slots + scores + sums + statistics,
        short_split=split,
        long_split=split,
        own={
            "split": split,
            "lanes": LANES,
            "statistics": STATISTICS,
            "prefetched": PREFETCHED,
            "latent": form.latent,
            "v_head_size": form.v_head_size,
        },
    )


def reduce_workgroup(form: AttentionForm) -> tuple[int, int]:
    """(threads, bytes of workgroup memory) of the program that joins the splits."""
    columns = form.v_head_size // 4
    threads = max(REDUCE_WORKGROUP, columns)
    return threads, (threads // columns) * (16 * columns + 2 * 4)


def partials_bytes(form: AttentionForm, info: DeviceInfo, max_sequences: int, max_kv_len: int) -> int:
    """Bytes of scratch memory between the two decode programs; 0 where one split serves all."""
    splits = decode_tile(form, info).splits(form, max_kv_len)
    return 0 if splits == 1 else 4 * max_sequences * form.num_heads * splits * (form.v_head_size + 4)
