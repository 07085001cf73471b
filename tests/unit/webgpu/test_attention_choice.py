"""Which attention programs a device runs, in what tiles, and what is refused, on adapters not of this machine."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pageloom.backends.webgpu.device import BYTE_MATRICES, INTEGER_DOTS, SUBGROUP_MATRICES, DeviceInfo
from pageloom.backends.webgpu.programs.attention_check import check_attention, decoder_form
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket, choose_attention, gpu_needs
from pageloom.backends.webgpu.programs.attention_decode import (
    OF_CODES,
    OF_FLOATS,
    SubgroupsCut,
    decode_tile,
    decodes_without,
    why_not_integer_dots,
    why_not_subgroups,
)
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_matrices import why_not_matrices
from pageloom.backends.webgpu.programs.decode_tile import SHORT_LENGTH
from pageloom.backends.webgpu.programs.elements import ElementKind
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.model.layer_ops import PagedAttention, Rope

LIMITS = {
    "maxBufferSize": 2**28,
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupSizeY": 256,
    "maxComputeWorkgroupSizeZ": 64,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxComputeWorkgroupsPerDimension": 65535,
    "maxStorageBufferBindingSize": 2**27,
    "maxStorageBuffersPerShaderStage": 8,
}
GPU = DeviceInfo("acme", "plain", "Acme", "browser", "gpu", frozenset(), LIMITS)
WITH_SUBGROUPS = dataclasses.replace(GPU, features=frozenset({"subgroups"}), subgroup_min_size=32)
WITH_INTEGER_DOTS = dataclasses.replace(WITH_SUBGROUPS, language_features=frozenset({INTEGER_DOTS}))
WITH_MATRICES = dataclasses.replace(
    WITH_INTEGER_DOTS,
    features=frozenset({"subgroups", SUBGROUP_MATRICES}),
    limits={**LIMITS, "maxComputeWorkgroupStorageSize": 49152},
    subgroup_max_size=32,
    matrix_shapes=frozenset({BYTE_MATRICES}),
)
SMOLLM2 = PagedAttention(0, "qkv", "out", 9, 3, 64, 0.125, None)
BUCKET = AttentionBucket(max_tokens=256, max_sequences=16, max_query_len=256, max_kv_len=2048)


def form_of(op: PagedAttention) -> AttentionForm:
    return decoder_form(GPU, op, 16)


def with_limit(name: str, value: int) -> DeviceInfo:
    return dataclasses.replace(GPU, limits={**LIMITS, name: value})


def test_a_gpu_of_default_limits_runs_the_gpu_programs() -> None:
    choice = choose_attention(GPU, form_of(SMOLLM2), BUCKET)
    assert choice.variant == "gpu"
    assert "idle" in choice.reasons["software"]
    assert choice.without_subgroups == "the device lacks subgroups"
    assert choose_attention(WITH_SUBGROUPS, form_of(SMOLLM2), BUCKET).without_subgroups is None


def test_a_cpu_adapter_runs_the_programs_without_barriers() -> None:
    choice = choose_attention(dataclasses.replace(GPU, adapter_class="software"), form_of(SMOLLM2), BUCKET)
    assert choice.variant == "software"
    assert "barriers" in choice.reasons["gpu"]


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("maxComputeInvocationsPerWorkgroup", 64),
        ("maxComputeWorkgroupStorageSize", 4096),
        ("maxStorageBuffersPerShaderStage", 4),
        ("maxStorageBufferBindingSize", 2**16),
    ],
)
def test_a_gpu_too_small_for_the_gpu_programs_says_which_limit_stops_it(limit: str, value: int) -> None:
    choice = choose_attention(with_limit(limit, value), form_of(SMOLLM2), BUCKET)
    assert choice.variant == "software"
    assert choice.reasons["gpu"].startswith(f"{limit} is {value}")


@pytest.mark.parametrize("head_size", range(8, 257, 8))
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 16, 32])
@pytest.mark.parametrize("info", [GPU, WITH_SUBGROUPS], ids=["plain", "subgroups"])
def test_every_head_size_and_group_fits_the_least_workgroup_memory(
    info: DeviceInfo, head_size: int, group: int
) -> None:
    op = dataclasses.replace(SMOLLM2, num_heads=2 * group, kv_num_heads=2, head_size=head_size)
    for needs in gpu_needs(info, form_of(op), BUCKET):
        assert needs.workgroup_bytes <= 16384
        assert needs.workgroup_size[0] <= 256


@pytest.mark.parametrize("window", [-1, 1, 2, 127, 128, 129, 130, 512, 5000])
@pytest.mark.parametrize("info", [GPU, WITH_SUBGROUPS], ids=["plain", "subgroups"])
@pytest.mark.parametrize("max_kv_len", [1, 64, 65, 1000, 1024, 1025, 2048])
def test_the_splits_cover_a_window_wherever_it_starts(info: DeviceInfo, window: int, max_kv_len: int) -> None:
    form = form_of(dataclasses.replace(SMOLLM2, local_window_size=window))
    tile = decode_tile(form, info)

    def splits(position: int) -> int:
        split = tile.short_split if position < SHORT_LENGTH else tile.long_split
        return position // split - max(0, position + 1 - window if window > 0 else 0) // split + 1

    most = max(map(splits, range(max_kv_len)))
    assert most <= tile.splits(form, max_kv_len) <= most + 1


@pytest.mark.parametrize(
    ("head_size", "size", "lanes"), [(128, 32, 16), (256, 64, 32), (64, 32, 8), (64, 4, 4), (32, 4, 4), (128, 8, 8)]
)
def test_lanes_of_a_row_fit_the_smallest_subgroup(head_size: int, size: int, lanes: int) -> None:
    info = dataclasses.replace(WITH_SUBGROUPS, subgroup_min_size=size)
    tile = decode_tile(form_of(dataclasses.replace(SMOLLM2, head_size=head_size)), info)
    assert tile.own["lanes"] == lanes


@pytest.mark.parametrize(
    ("head_size", "size", "reason"),
    [
        (16, 32, "one for each of 4 query heads"),
        (128, 4, "takes 16 loads"),
        (80, 32, "2 threads"),
        (96, 32, "takes 12 loads"),
        (64, 0, "lacks subgroups"),
    ],
)
def test_why_a_decode_does_without_subgroups(head_size: int, size: int, reason: str) -> None:
    info = dataclasses.replace(WITH_SUBGROUPS, subgroup_min_size=size) if size else GPU
    form = form_of(dataclasses.replace(SMOLLM2, head_size=head_size))
    assert reason in (why_not_subgroups(form, info) or "")
    assert decode_tile(form, info).template == "paged_attention/decode.wgsl.j2"


@pytest.mark.parametrize(
    ("key_kind", "value_kind", "dots"),
    [
        ("int8", "int8", (True, True)),
        ("int4", "packed_f16", (True, False)),
        ("f8", "int4", (False, True)),
        ("packed_f16", "packed_f16", (False, False)),
    ],
)
def test_integer_codes_are_met_by_products_of_bytes(
    key_kind: ElementKind, value_kind: ElementKind, dots: tuple[bool, bool]
) -> None:
    form = dataclasses.replace(form_of(SMOLLM2), key_kind=key_kind, value_kind=value_kind, output_kind="packed_f16")
    own = decode_tile(form, WITH_INTEGER_DOTS).own
    assert (own["key_dots"], own["value_dots"]) == dots


@pytest.mark.parametrize(
    ("info", "output_kind", "reason"),
    [
        (WITH_SUBGROUPS, "packed_f16", "lacks packed_4x8_integer_dot_product"),
        (WITH_INTEGER_DOTS, "f32", "not as exact as an output in float32"),
    ],
)
def test_why_codes_are_made_numbers_first(info: DeviceInfo, output_kind: ElementKind, reason: str) -> None:
    form = dataclasses.replace(form_of(SMOLLM2), key_kind="int8", value_kind="int8", output_kind=output_kind)
    assert reason in (why_not_integer_dots(form, info) or "")
    own = decode_tile(form, info).own
    assert (own["key_dots"], own["value_dots"]) == (False, False)


@pytest.mark.parametrize(
    ("key_kind", "value_kind", "cut"),
    [("int8", "int4", OF_CODES), ("int8", "packed_f16", OF_FLOATS), ("packed_f16", "packed_f16", OF_FLOATS)],
)
def test_decodes_are_cut_for_codes_only_where_keys_and_values_are_codes(
    key_kind: ElementKind, value_kind: ElementKind, cut: SubgroupsCut
) -> None:
    form = dataclasses.replace(form_of(SMOLLM2), key_kind=key_kind, value_kind=value_kind, output_kind="packed_f16")
    tile = decode_tile(form, WITH_INTEGER_DOTS)
    assert (tile.workgroup_size, tile.own["keys_per_step"]) == (cut.workgroup_size, cut.keys_per_step)
    teams = cut.workgroup_size // int(tile.own["lanes"])
    for split in (tile.short_split, tile.long_split):
        assert split % (teams * cut.keys_per_step) == 0  # a split is a number of whole steps


@pytest.mark.parametrize(
    ("change", "device", "reason"),
    [
        ({}, {}, None),
        ({"head_size": 64, "v_head_size": 64, "block_size": 32, "window": 100, "softcap": 5.0}, {}, None),
        ({}, {"features": frozenset({"subgroups"})}, "the device lacks chromium-experimental-subgroup-matrix"),
        ({}, {"matrix_shapes": frozenset({("f16", "f32", 16, 8, 16)})}, "16 x 32 by 32 x 8 signed bytes"),
        ({}, {"subgroup_min_size": 16}, "subgroups have 16 to 32 threads"),
        (
            {},
            {"limits": {**LIMITS, "maxComputeWorkgroupStorageSize": 16384}},
            "maxComputeWorkgroupStorageSize is 16384",
        ),
        ({"value_kind": "int4"}, {}, "K is int8 and V int4"),
        ({"output_kind": "f32"}, {}, "not as exact as an output in float32"),
        ({"num_heads": 16}, {}, None),
        ({"num_heads": 8}, {}, "a KV head has one query head"),
        ({"head_size": 96, "v_head_size": 96}, {}, "head size 96; it must be 64 or 128"),
    ],
)
def test_int8_is_met_by_products_of_matrices_where_they_fit(
    change: dict[str, Any], device: dict[str, Any], reason: str | None
) -> None:
    op = dataclasses.replace(SMOLLM2, num_heads=32, kv_num_heads=8, head_size=128)
    form = dataclasses.replace(
        form_of(op), **({"key_kind": "int8", "value_kind": "int8", "output_kind": "packed_f16"} | change)
    )
    info = dataclasses.replace(WITH_MATRICES, **device)
    found = why_not_matrices(form, info)
    assert reason in found if reason and found else found is reason
    assert decodes_without(form, info).get("matrices of bytes") == found
    assert (decode_tile(form, info).template == "paged_attention/decode_matrices.wgsl.j2") == (reason is None)


def test_a_float_cache_is_not_told_of_matrices_of_bytes() -> None:
    assert decodes_without(form_of(SMOLLM2), WITH_SUBGROUPS) == {}


def test_a_large_batch_gives_a_workgroup_several_splits_and_a_small_one_does_not() -> None:
    form = form_of(dataclasses.replace(SMOLLM2, num_heads=32, kv_num_heads=8, head_size=128))
    tile = decode_tile(form, WITH_SUBGROUPS)
    splits = tile.splits(form, 4096)
    assert tile.runs(form, 1, splits) == splits
    assert 1 <= tile.runs(form, 64, splits) < splits


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"head_size": 36}, NotSupported, "head size 36"),
        ({"head_size": 520}, NotSupported, "head size 520"),
        ({"rope": Rope(72, False, (1.0,) * 36)}, NotSupported, "rotary over 72 channels"),
        ({"q_norm": "q_norm"}, NotSupported, "only one of Q and K"),
        ({"num_heads": 8}, InvalidArgument, "8 query heads over 3 KV heads"),
        ({"local_window_size": 0}, InvalidArgument, "window of 0 keys"),
        ({"softcap": -1.0}, InvalidArgument, "softcap of -1.0"),
        ({"rope": Rope(64, False, (1.0,))}, InvalidArgument, "64 channels with 1 frequencies"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    change: dict[str, object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        check_attention(dataclasses.replace(SMOLLM2, **change))
