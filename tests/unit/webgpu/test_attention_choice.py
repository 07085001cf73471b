"""Which attention programs a device runs, in what tiles, and what is refused, on adapters not of this machine."""

from __future__ import annotations

import dataclasses

import pytest

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_check import check_attention, decoder_form
from pageloom.backends.webgpu.programs.attention_choice import AttentionBucket, choose_attention, gpu_needs
from pageloom.backends.webgpu.programs.attention_form import AttentionForm
from pageloom.backends.webgpu.programs.attention_tiles import decode_tile
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
def test_every_head_size_and_group_fits_the_least_workgroup_memory(head_size: int, group: int) -> None:
    op = dataclasses.replace(SMOLLM2, num_heads=2 * group, kv_num_heads=2, head_size=head_size)
    for needs in gpu_needs(GPU, form_of(op), BUCKET):
        assert needs.workgroup_bytes <= 16384
        assert needs.workgroup_size[0] <= 256


@pytest.mark.parametrize("window", [-1, 1, 2, 127, 128, 129, 130, 512, 5000])
def test_the_splits_cover_a_window_wherever_it_starts(window: int) -> None:
    form = form_of(dataclasses.replace(SMOLLM2, local_window_size=window))
    tile = decode_tile(form, GPU)
    split, splits = tile.split, tile.splits(form, 2048)
    most = max(
        position // split - max(0, position + 1 - window if window > 0 else 0) // split + 1 for position in range(2048)
    )
    assert splits == most


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
