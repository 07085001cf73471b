"""Which implementation of PagedAttention runs a call, and why no faster one does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_choice import SOFTWARE_REASON
from pageloom.errors import NotSupported

Tier = Literal["direct-gpu", "direct-software", "gather-then-flash"]
TIERS: tuple[Tier, ...] = ("direct-gpu", "direct-software", "gather-then-flash")
"""Fastest first.

- direct-gpu: split-K decode and tiled prefill over the pages in place, workgroups sharing what they load;
- direct-software: a thread for each token and few heads over the pages in place, without barriers;
- gather-then-flash: the pages are first copied to dense tensors.
"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The tier that runs a call, and for every faster one the reason why it does not."""

    tier: Tier
    reasons: Mapping[Tier, str] = field(default_factory=dict)


def choose_tier(info: DeviceInfo, why_not: Mapping[Tier, str | None], forced: Tier | None) -> Explanation:
    """The fastest tier that can run; or `forced`, which a faster tier then does not run for that reason.

    `why_not` gives for each tier the reason why the device cannot run it, or None. Raises `NotSupported` where the
    forced tier, or every tier, cannot.
    """
    if forced is not None:
        if (reason := why_not[forced]) is not None:
            raise NotSupported(f"tier {forced} cannot run this call: {reason}", param="tier")
        faster = TIERS[: TIERS.index(forced)]
        return Explanation(forced, {tier: why_not[tier] or f"tier {forced} was asked for" for tier in faster})
    reasons: dict[Tier, str] = {}
    for tier in TIERS:
        reason = why_not[tier]
        if reason is None and tier == "direct-gpu" and info.adapter_class == "software":
            reason = SOFTWARE_REASON
        if reason is None:
            return Explanation(tier, reasons)
        reasons[tier] = reason
    raise NotSupported("; ".join(f"{tier}: {reason}" for tier, reason in reasons.items()))
