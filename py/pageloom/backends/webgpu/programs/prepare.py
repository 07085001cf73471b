"""What the integer and the small float tensors of an operator's call become before attention, on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pageloom.backends.webgpu.device import Buffer
from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import ParameterValue, PlannedDispatch, ProgramKey
from pageloom.backends.webgpu.programs.attention_form import bound
from pageloom.backends.webgpu.programs.elements import ElementKind

WORKGROUP = 64
NO_SPLITS: Mapping[str, ParameterValue] = {"short_split": 0, "long_split": 0, "short_length": 0}
FACTORS = ("sinks", "q_norm", "k_norm", "k_scale", "v_scale")
"""The sections of `factors` in the order in which `factors.wgsl.j2` lays them out."""


@dataclass(frozen=True, slots=True)
class DecodeGrid:
    """The decode program's grid, to be found on the device and written to `buffer`: `groups` by the splits that the
    call needs, at most `most_runs`, by the sequences."""

    buffer: Buffer
    groups: int
    most_runs: int
    window: int
    split_parameters: Mapping[str, ParameterValue]


def plan_prepare_metadata(
    cumulative: Buffer,
    past: Buffer,
    table: Buffer,
    slot_mapping: Buffer | None,
    bounds: Buffer,
    step: Buffer,
    *,
    block_size: int,
    tile_tokens: int,
    num_items: int,
    decode_grid: DecodeGrid | None = None,
) -> PlannedDispatch:
    """Fill `step`, whose header is there, and `decode_grid`, from an operator's tensors. `num_items` is the longest
    array of the step."""
    key = ProgramKey.of(
        "paged_attention/prepare_metadata.wgsl.j2",
        slot_mapping=slot_mapping is not None,
        block_size=block_size,
        tile_tokens=tile_tokens,
        decode_groups=decode_grid.groups if decode_grid else 0,
        most_runs=decode_grid.most_runs if decode_grid else 0,
        window=decode_grid.window if decode_grid else 0,
        **(decode_grid.split_parameters if decode_grid else NO_SPLITS),
        workgroup_size=WORKGROUP,
    )
    buffers = bound(cumulative, past, table, slot_mapping, bounds, step, decode_grid.buffer if decode_grid else None)
    return PlannedDispatch(key, buffers, split_grid(-(-num_items // WORKGROUP)), "prepare metadata")


def factor_sizes(num_heads: int, kv_num_heads: int, head_size: int) -> dict[str, int]:
    """Numbers of each section of `factors`, each a multiple of 4."""
    scales = kv_num_heads * head_size
    return dict(zip(FACTORS, (-(-num_heads // 4) * 4, head_size, head_size, scales, scales), strict=True))


def plan_pack_factors(
    sections: Mapping[str, Buffer],
    packed: Buffer,
    *,
    num_heads: int,
    kv_num_heads: int,
    head_size: int,
    kind: ElementKind,
    key_scale_is_single: bool,
    value_scale_is_single: bool,
) -> PlannedDispatch:
    """Copy the given sections (of `FACTORS`) to `packed` as f32. `kind` is that of sinks and norms; scales are f32, and
    one of a single element is repeated for every channel."""
    names = [name for name in FACTORS if name in sections]
    key = ProgramKey.of(
        "paged_attention/pack_factors.wgsl.j2",
        factors=" ".join(names),
        num_heads=num_heads,
        kv_num_heads=kv_num_heads,
        head_size=head_size,
        kind=kind,
        key_scale_is_single=key_scale_is_single,
        value_scale_is_single=value_scale_is_single,
        workgroup_size=WORKGROUP,
    )
    sizes = factor_sizes(num_heads, kv_num_heads, head_size)
    longest = max(sizes[name] for name in names)
    buffers = (*(sections[name] for name in names), packed)
    return PlannedDispatch(key, buffers, split_grid(-(-longest // WORKGROUP)), "pack factors")
