"""The tiers of the CUDA backend, fastest first, and what options and environment forbid of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pageloom.attention.tiers import Explanation, fastest
from pageloom.attention.validation import require_one_of
from pageloom.errors import InvalidArgument

Tier = Literal["fused", "triton", "cudnn", "flash", "memory-efficient", "unfused"]
TIERS: tuple[Tier, ...] = ("fused", "triton", "cudnn", "flash", "memory-efficient", "unfused")
CACHED_TIERS: tuple[Tier, ...] = ("fused", "cudnn", "triton", "unfused")
"""Of the operators that append to a cache, PagedAttention and GroupQueryAttention.

- fused: one kernel appends the new token, attends over split keys and merges the splits;
- cudnn: an append kernel, then cuDNN's attention over the cache, or over its pages gathered;
- triton: an append kernel, then ours over the cache in place;
- unfused: an append kernel, then matrix products and a softmax of PyTorch.
"""
ONNX_TIERS: tuple[Tier, ...] = ("triton", "cudnn", "flash", "memory-efficient", "unfused")
"""Of Attention: ours with split keys, for few query rows; cuDNN's, Flash and memory-efficient as PyTorch carries them;
and matrix products and a softmax."""

SCATTER_TIERS: tuple[Tier, ...] = ("unfused",)
"""Of TensorScatter, which only copies."""
SDPA_KERNELS: Mapping[int, Tier] = {1: "flash", 2: "memory-efficient", 8: "cudnn", 16: "unfused", 512: "triton"}
"""The bits of ONNX Runtime's provider option `sdpa_kernel`."""
_DISABLING: Mapping[str, tuple[Tier, ...]] = {
    "ORT_DISABLE_FLASH_ATTENTION": ("flash",),
    "ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION": ("memory-efficient",),
    "ORT_DISABLE_FLASH_DECODE": ("triton",),
}
_ENABLING: Mapping[str, tuple[Tier, ...]] = {
    "ORT_ENABLE_CUDNN_FLASH_ATTENTION": ("cudnn",),
    "ORT_ENABLE_XQA": ("fused",),
}
DEBUG_INFO = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """`forbidden` maps tiers to the reason; `forced` is the one that may run, or None; `logs` says every choice."""

    forbidden: Mapping[Tier, str] = field(default_factory=dict)
    forced: Tier | None = None
    logs: bool = False

    @classmethod
    def of(
        cls,
        *,
        forbid: Collection[str] = (),
        tier: str | None = None,
        sdpa_kernel: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> TierPolicy:
        """The policy of explicit options, over what ONNX Runtime's names in the environment say.

        `sdpa_kernel` is a sum of the bits in `SDPA_KERNELS`, of which only those tiers may run; 0 is no restriction.
        Raises `InvalidArgument` for a tier, or a bit, that there is not.
        """
        environment = os.environ if environment is None else environment
        reasons: dict[Tier, str] = {}
        for name in forbid:
            require_one_of("forbid", name, TIERS)
        if tier is not None:
            require_one_of("tier", tier, TIERS)
        if sdpa_kernel < 0 or sdpa_kernel & ~sum(SDPA_KERNELS):
            raise InvalidArgument(
                f"sdpa_kernel is {sdpa_kernel}; a sum of {', '.join(map(str, SDPA_KERNELS))} is allowed",
                param="sdpa_kernel",
            )
        for name, tiers in {**_DISABLING, **_ENABLING}.items():
            value = environment.get(name, "")
            if value and _is_on(name, value) == (name in _DISABLING):
                reasons |= dict.fromkeys(tiers, f"{name} is {value}")
        if sdpa_kernel:
            named = {kernel_tier for bit, kernel_tier in SDPA_KERNELS.items() if bit & sdpa_kernel}
            reasons |= {one: f"sdpa_kernel {sdpa_kernel} does not name it" for one in TIERS if one not in named}
        reasons |= {one: "the option forbid names it" for one in TIERS if one in forbid}
        forced = next((one for one in TIERS if one == tier), None)
        return cls(reasons, forced, _is_on(DEBUG_INFO, environment.get(DEBUG_INFO, "0")))


def _is_on(name: str, value: str) -> bool:
    if value not in ("0", "1"):
        raise InvalidArgument(f"the environment's {name} is {value!r}; 0 or 1 is allowed", param=name)
    return value == "1"


def choose_tier(
    tiers: Collection[Tier],
    cannot: Mapping[Tier, str],
    would_not_help: Mapping[Tier, str],
    policy: TierPolicy,
    forced: Tier | None = None,
) -> Explanation[Tier]:
    """The fastest of `tiers` that can run and helps; or `forced`, or the policy's, if it can.

    Raises `NotSupported` where a forced tier, or every tier, cannot run; `InvalidArgument` for a tier that the operator
    has not.
    """
    forced = forced or policy.forced
    order = tuple(tiers)
    if forced is not None:
        require_one_of("tier", forced, order)
        return fastest(order, {tier: cannot.get(tier) for tier in order}, forced)
    against = {tier: cannot.get(tier) or policy.forbidden.get(tier) or would_not_help.get(tier) for tier in order}
    return fastest(order, against)
