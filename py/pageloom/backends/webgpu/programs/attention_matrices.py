"""Decodes over int8 caches by products of matrices of bytes within subgroups: where they run, and how they cut their
work."""

from __future__ import annotations

from pageloom.backends.webgpu.device import BYTE_MATRICES, SUBGROUP_MATRICES, DeviceInfo
from pageloom.backends.webgpu.limits import ProgramNeeds, why_not
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import even_parts
from pageloom.backends.webgpu.programs.decode_tile import HEADS, DecodeTile

SUBGROUP = 32
"""Threads of the subgroups that these programs are written for."""
TEAMS = 4
"""Subgroups of a workgroup, each with as many keys of a step as threads. Each key takes much workgroup memory, of which
a GPU's core has little: with more keys fewer workgroups would run side by side."""
LONG_SPLIT = 512
"""Keys of the splits of a sequence of at least `SHORT_LENGTH`; a shorter one has a step's."""
HEAD_SIZES = (64, 128)
"""Longer rows take so much workgroup memory that products of four bytes are faster."""


def why_not_matrices(form: AttentionForm, info: DeviceInfo) -> str | None:
    """The reason why a decode over an int8 cache cannot multiply matrices of bytes within subgroups, or None."""
    if SUBGROUP_MATRICES not in info.features:
        return info.subgroups_refused or f"the device lacks {SUBGROUP_MATRICES}"
    if BYTE_MATRICES not in info.matrix_shapes:
        return "the device multiplies no matrices of 16 x 32 by 32 x 8 signed bytes"
    if not info.subgroup_min_size == info.subgroup_max_size == SUBGROUP:
        sizes = f"{info.subgroup_min_size} to {info.subgroup_max_size}"
        return f"the device's subgroups have {sizes} threads, and must have {SUBGROUP}"
    if not form.key_kind == form.value_kind == "int8":
        return f"K is {form.key_kind} and V {form.value_kind}; both must be int8"
    if form.output_kind == "f32":
        return "queries and weights in 16 bits are not as exact as an output in float32"
    if form.group == 1:
        return "a KV head has one query head, for which products of four bytes are faster"
    if form.head_size not in HEAD_SIZES:
        return f"head size {form.head_size}; it must be {' or '.join(map(str, HEAD_SIZES))}"
    tile = matrices_tile(form)
    needs = ProgramNeeds(workgroup_size=(tile.workgroup_size, 1, 1), workgroup_bytes=tile.workgroup_bytes)
    return why_not(needs, info)


def matrices_tile(form: AttentionForm) -> DecodeTile:
    """The tile of a form for which `why_not_matrices` has no reason but the device's."""
    keys, pieces = SUBGROUP * TEAMS, form.head_size // 16
    codes = 16 * max(keys * (pieces + 1), form.head_size * (keys // 16 + 1))
    limbs = 4 * 8 * max(form.head_size // 4 + 4, keys // 4 + 4)
    results = 4 * 8 * max(keys + 4, 18 * pieces + 4)
    statistics = 4 * HEADS * (2 * TEAMS + 1)
    return DecodeTile(
        template="paged_attention/decode_matrices.wgsl.j2",
        heads_per_group=even_parts(form.group, HEADS),
        workgroup_size=keys,
        workgroup_bytes=codes + limbs + results + statistics,
        short_split=keys,
        long_split=LONG_SPLIT,
        left_out=("key_kind", "value_kind"),
        takes_runs=True,
    )
