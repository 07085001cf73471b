"""Which implementation runs a call, and why no faster one does: the words of every backend's `explain()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pageloom.errors import InvalidArgument, NotSupported

TierT = TypeVar("TierT", bound=str)


@dataclass(frozen=True, slots=True)
class Explanation(Generic[TierT]):
    """The tier that runs a call, and for every faster one the reason why it does not."""

    tier: TierT
    reasons: Mapping[TierT, str] = field(default_factory=dict)


def named_tier(tiers: Sequence[TierT], name: str | None) -> TierT | None:
    """The one of `tiers` that is called `name`; None for none. Raises `InvalidArgument` for one that there is not."""
    found = next((tier for tier in tiers if tier == name), None)
    if name is not None and found is None:
        raise InvalidArgument(f"there is no tier {name!r}; there are {', '.join(tiers)}", param="tier")
    return found


def fastest(
    tiers: Sequence[TierT], why_not: Mapping[TierT, str | None], forced: TierT | None = None
) -> Explanation[TierT]:
    """The first of `tiers`, fastest first, that can run a call; or `forced`, which then stands before the faster ones.

    `why_not` gives for each tier the reason why it cannot run the call, or None. Raises `InvalidArgument` for a forced
    tier that there is not, `NotSupported` where it, or every tier, cannot.
    """
    if (forced := named_tier(tiers, forced)) is not None:
        if (reason := why_not[forced]) is not None:
            raise NotSupported(f"tier {forced} cannot run this call: {reason}", param="tier")
        faster = tiers[: tiers.index(forced)]
        return Explanation(forced, {tier: why_not[tier] or f"tier {forced} was asked for" for tier in faster})
    reasons: dict[TierT, str] = {}
    for tier in tiers:
        reason = why_not[tier]
        if reason is None:
            return Explanation(tier, reasons)
        reasons[tier] = reason
    raise NotSupported("; ".join(f"{tier}: {reason}" for tier, reason in reasons.items()))
