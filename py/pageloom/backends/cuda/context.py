"""What the operators of one device share."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pageloom.backends.cuda.availability import DeviceFacts
from pageloom.backends.cuda.plans import PlanCache
from pageloom.backends.cuda.tiers import TierPolicy


@dataclass(frozen=True, slots=True)
class Context:
    device: torch.device
    facts: DeviceFacts
    policy: TierPolicy
    plans: PlanCache
    splits: int | None = None
    """Of the keys of a decode, where they do not depend on how many sequences there are."""
