"""What options and the environment forbid, and which tier is left."""

from __future__ import annotations

import pytest

from pageloom.backends.cuda.tiers import CACHED_TIERS, ONNX_TIERS, TIERS, TierPolicy, choose_tier
from pageloom.errors import InvalidArgument, NotSupported

OPEN = TierPolicy.of(environment={})


def test_the_fastest_tier_that_can_and_helps_runs_with_a_reason_against_each_faster_one() -> None:
    explained = choose_tier(CACHED_TIERS, {"fused": "no room"}, {"cudnn": "too short"}, OPEN)
    assert explained.tier == "triton"
    assert explained.reasons == {"fused": "no room", "cudnn": "too short"}


def test_a_forced_tier_runs_where_it_would_not_help_and_where_it_is_forbidden() -> None:
    policy = TierPolicy.of(forbid=["cudnn"], environment={})
    explained = choose_tier(CACHED_TIERS, {}, {"cudnn": "too short"}, policy, "cudnn")
    assert explained.tier == "cudnn"


def test_a_forced_tier_that_cannot_run_is_refused_with_its_reason() -> None:
    with pytest.raises(NotSupported, match="tier cudnn cannot run this call: no library"):
        choose_tier(ONNX_TIERS, {"cudnn": "no library"}, {}, OPEN, "cudnn")


def test_a_tier_of_another_operator_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="tier is 'flash'"):
        choose_tier(CACHED_TIERS, {}, {}, OPEN, "flash")


@pytest.mark.parametrize(
    ("environment", "forbidden"),
    [
        ({"ORT_DISABLE_FLASH_ATTENTION": "1"}, {"flash"}),
        ({"ORT_DISABLE_FLASH_ATTENTION": "0"}, set()),
        ({"ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION": "1"}, {"memory-efficient"}),
        ({"ORT_DISABLE_FLASH_DECODE": "1"}, {"triton"}),
        ({"ORT_ENABLE_CUDNN_FLASH_ATTENTION": "0"}, {"cudnn"}),
        ({"ORT_ENABLE_CUDNN_FLASH_ATTENTION": "1"}, set()),
        ({"ORT_ENABLE_XQA": "0", "ORT_DISABLE_FLASH_ATTENTION": "1"}, {"fused", "flash"}),
        ({"ORT_ENABLE_XQA": ""}, set()),
    ],
)
def test_onnx_runtimes_names_in_the_environment_forbid_tiers(environment: dict[str, str], forbidden: set[str]) -> None:
    policy = TierPolicy.of(environment=environment)
    assert set(policy.forbidden) == forbidden
    for name, value in environment.items():
        if forbidden and value:
            assert any(name in reason for reason in policy.forbidden.values())


def test_a_value_that_is_no_switch_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="ORT_ENABLE_XQA is 'yes'; 0 or 1"):
        TierPolicy.of(environment={"ORT_ENABLE_XQA": "yes"})


def test_the_debug_switch_turns_the_log_on() -> None:
    assert TierPolicy.of(environment={"ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"}).logs
    assert not OPEN.logs


def test_the_kernel_mask_leaves_the_tiers_that_it_names() -> None:
    policy = TierPolicy.of(sdpa_kernel=8 + 16, environment={})
    assert set(policy.forbidden) == set(TIERS) - {"cudnn", "unfused"}
    assert choose_tier(ONNX_TIERS, {}, {}, policy).tier == "cudnn"


@pytest.mark.parametrize("mask", [-1, 4, 1024, 1 + 32])
def test_a_bit_that_names_no_kernel_is_refused(mask: int) -> None:
    with pytest.raises(InvalidArgument, match="sdpa_kernel"):
        TierPolicy.of(sdpa_kernel=mask, environment={})


@pytest.mark.parametrize(("option", "value"), [("tier", "fast"), ("forbid", ["flash", "xqa"])])
def test_an_unknown_tier_in_an_option_is_refused(option: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=option):
        TierPolicy.of(environment={}, **{option: value})  # type: ignore[arg-type]
