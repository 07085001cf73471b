"""The choice among tiers: the fastest that can, and a reason for every faster one."""

from __future__ import annotations

import pytest

from pageloom.attention.tiers import fastest
from pageloom.errors import NotSupported

TIERS = ("fast", "middle", "slow")
ALL = dict.fromkeys(TIERS)


def test_the_fastest_that_can_is_chosen_and_needs_no_excuse() -> None:
    explained = fastest(TIERS, ALL)
    assert (explained.tier, dict(explained.reasons)) == ("fast", {})


def test_each_faster_one_has_its_reason() -> None:
    explained = fastest(TIERS, {"fast": "too big", "middle": "no such type", "slow": None})
    assert (explained.tier, dict(explained.reasons)) == ("slow", {"fast": "too big", "middle": "no such type"})


def test_a_forced_tier_stands_before_the_faster_ones() -> None:
    explained = fastest(TIERS, {**ALL, "fast": "too big"}, "slow")
    assert explained.tier == "slow"
    assert dict(explained.reasons) == {"fast": "too big", "middle": "tier slow was asked for"}


def test_a_forced_tier_that_cannot_is_refused_with_its_reason() -> None:
    with pytest.raises(NotSupported, match="tier middle cannot run this call: no such type") as caught:
        fastest(TIERS, {**ALL, "middle": "no such type"}, "middle")
    assert caught.value.param == "tier"


def test_where_none_can_every_reason_is_told() -> None:
    with pytest.raises(NotSupported, match="fast: a; middle: b; slow: c"):
        fastest(TIERS, dict(zip(TIERS, "abc", strict=True)))
