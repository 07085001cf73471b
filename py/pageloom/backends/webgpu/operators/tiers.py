"""Which implementation of PagedAttention runs a call, and why no faster one does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pageloom.attention.tiers import Explanation, fastest
from pageloom.backends.webgpu.device import DeviceInfo
from pageloom.backends.webgpu.programs.attention_choice import SOFTWARE_REASON

Tier = Literal["direct-gpu", "direct-software", "gather-then-flash"]
TIERS: tuple[Tier, ...] = ("direct-gpu", "direct-software", "gather-then-flash")
"""Fastest first.

- direct-gpu: split-K decode and tiled prefill over the pages in place, workgroups sharing what they load;
- direct-software: a thread for each token and few heads over the pages in place, without barriers;
- gather-then-flash: the pages are first copied to dense tensors.
"""


@dataclass(frozen=True, slots=True)
class WebGpuExplanation(Explanation[Tier]):
    """Besides the tier: what decodes of direct-gpu do without that would make them faster ("subgroups", or within
    these "matrices of bytes" and "integer dots"), and why."""

    decodes_without: Mapping[str, str] = field(default_factory=dict)


def choose_tier(info: DeviceInfo, why_not: Mapping[Tier, str | None], forced: Tier | None) -> Explanation[Tier]:
    """The fastest tier that can run; or `forced`, which a faster tier then does not run for that reason.

    `why_not` gives for each tier the reason why the device cannot run it, or None. Raises `NotSupported` where the
    forced tier, or every tier, cannot.
    """
    if forced is None and why_not["direct-gpu"] is None and info.adapter_class == "software":
        why_not = {**why_not, "direct-gpu": SOFTWARE_REASON}
    return fastest(TIERS, why_not, forced)
