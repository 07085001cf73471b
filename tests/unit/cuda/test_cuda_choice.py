"""Eligibility by static facts alone, on facts of GPUs that are not here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pageloom.attention.onnx.check import OnnxAttentionShape
from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.tensors import DType
from pageloom.backends.cuda.availability import DeviceFacts
from pageloom.backends.cuda.cudnn_choice import why_not_cudnn
from pageloom.backends.cuda.onnx_choice import cannot, would_not_help

HOPPER = DeviceFacts("H", (9, 0), 132, 91900, "", "")
TURING = DeviceFacts("T", (7, 5), 40, 91900, "", "")
WITHOUT_CUDNN = replace(HOPPER, cudnn=0, why_no_cudnn="nvidia-cudnn-frontend is not installed")
DECODE = OnnxAttentionShape(
    flat=False, dtype="float16", batch_size=2, q_num_heads=8, kv_num_heads=2, q_sequence_length=1,
    kv_sequence_length=64, past_length=0, head_size=64, v_head_size=64, has_nonpad=True,
)  # fmt: skip
CAUSAL = OnnxAttentionSpec(is_causal=True)


def reasons(
    facts: DeviceFacts = HOPPER,
    spec: OnnxAttentionSpec = CAUSAL,
    shape: OnnxAttentionShape = DECODE,
    value_dtype: DType = "float16",
    **flags: bool,
) -> dict[Any, str]:
    flags = {"has_mask": False, "wants_products": False} | flags
    return dict(cannot(facts, spec, shape, value_dtype=value_dtype, **flags))


def test_decode_over_an_external_cache_may_run_on_ours_and_on_cudnn() -> None:
    assert set(reasons()) == {"flash", "memory-efficient"}
    assert would_not_help(DECODE) == {}


@pytest.mark.parametrize("head_sizes", [(72, 72), (248, 248), (64, 32), (128, 64), (8, 8)])
def test_cudnn_takes_multiples_of_8_and_two_sizes_that_differ(head_sizes: tuple[int, int]) -> None:
    shape = replace(DECODE, head_size=head_sizes[0], v_head_size=head_sizes[1])
    assert "cudnn" not in reasons(shape=shape)


@pytest.mark.parametrize(
    ("facts", "dtype", "sizes", "reason"),
    [
        (WITHOUT_CUDNN, "float16", (64, 64), "not installed"),
        (replace(HOPPER, cudnn=90200), "float16", (64, 64), "older than 90300"),
        (TURING, "float16", (64, 64), "compute capability 8.0"),
        (HOPPER, "float32", (64, 64), "not float32"),
        (HOPPER, "bfloat16", (264, 64), "head_size is 264"),
        (HOPPER, "bfloat16", (64, 36), "v_head_size is 36"),
    ],
)
def test_cudnn_says_why_not(facts: DeviceFacts, dtype: DType, sizes: tuple[int, int], reason: str) -> None:
    assert reason in why_not_cudnn(facts, dtype, *sizes)


@pytest.mark.parametrize("flag", ["has_mask", "wants_products"])
def test_masks_and_captured_scores_leave_the_fused_half_precision_tiers(flag: str) -> None:
    against = reasons(**{flag: True})
    assert {"triton", "cudnn", "flash"} <= set(against)


def test_float32_goes_to_memory_efficient_or_unfused() -> None:
    shape = replace(DECODE, dtype="float32", has_nonpad=False)
    assert set(reasons(shape=shape, value_dtype="float32")) == {"triton", "cudnn", "flash"}


def test_float64_is_left_to_unfused_alone() -> None:
    shape = replace(DECODE, dtype="float64", has_nonpad=False)
    assert set(reasons(shape=shape, value_dtype="float64")) == {"triton", "cudnn", "flash", "memory-efficient"}


def test_softcap_stays_on_ours_and_unfused() -> None:
    against = reasons(spec=OnnxAttentionSpec(is_causal=True, softcap=2.0), shape=replace(DECODE, has_nonpad=False))
    assert set(against) == {"cudnn", "flash", "memory-efficient"}


def test_flash_takes_lengths_with_flat_inputs_only() -> None:
    assert "three dimensions" in reasons()["flash"]
    assert "flash" not in reasons(shape=replace(DECODE, flat=True))


def test_flash_is_kept_from_the_causal_rule_without_a_cache_unless_square() -> None:
    cross = replace(DECODE, has_nonpad=False, q_sequence_length=3, kv_sequence_length=17)
    assert "top left" in reasons(shape=cross)["flash"]
    assert "flash" not in reasons(shape=replace(cross, q_sequence_length=17))
    assert "flash" not in reasons(shape=replace(cross, past_length=14, kv_sequence_length=3))


def test_values_of_another_type_are_left_to_unfused() -> None:
    assert set(reasons(value_dtype="bfloat16")) == {"triton", "cudnn", "flash", "memory-efficient"}


def test_many_query_rows_are_left_to_large_tiles() -> None:
    prefill = replace(DECODE, q_sequence_length=100)
    assert "400 query rows" in would_not_help(prefill)["triton"]
