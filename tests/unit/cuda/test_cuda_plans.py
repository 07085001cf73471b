"""The bounded, counted cache of plans, and what a capture may find in it."""

from __future__ import annotations

import pytest

from pageloom.backends.cuda.plans import PlanCache
from pageloom.errors import NotWarmedUp


class Stream:
    """Whether a capture is under way."""

    capturing = False

    def __call__(self) -> bool:
        return self.capturing


def warm(cache: PlanCache, key: str) -> None:
    cache.plan(key, "Attention").is_warm = True


def test_a_plan_is_made_once_and_counted() -> None:
    cache = PlanCache(4, Stream())
    first = cache.plan("a", "Attention")
    assert cache.plan("a", "Attention") is first
    assert (cache.counts.hits, cache.counts.misses, cache.counts.plans) == (1, 1, 1)


def test_what_a_plan_keeps_is_built_once() -> None:
    plan = PlanCache(4, Stream()).plan("a", "Attention")
    assert plan.keep("graph", lambda: [1]) is plan.keep("graph", lambda: [2])


def test_the_least_recently_used_plan_goes_first() -> None:
    cache = PlanCache(2, Stream())
    first = cache.plan("a", "Attention")
    cache.plan("b", "Attention")
    cache.plan("a", "Attention")
    cache.plan("c", "Attention")
    assert cache.counts.evictions == 1
    assert cache.plan("a", "Attention") is first
    assert cache.counts.plans == 2


def test_a_capture_refuses_a_plan_that_is_new_or_has_never_run_and_makes_none() -> None:
    stream = Stream()
    cache = PlanCache(4, stream)
    cache.plan("cold", "Attention")
    stream.capturing = True
    for key in ("new", "cold"):
        with pytest.raises(NotWarmedUp, match="Attention has never run with these shapes"):
            cache.plan(key, "Attention")
    assert cache.counts.plans == 1


def test_a_plan_that_a_graph_holds_is_never_dropped() -> None:
    stream = Stream()
    cache = PlanCache(1, stream)
    warm(cache, "held")
    stream.capturing = True
    held = cache.plan("held", "Attention")
    stream.capturing = False
    for key in "abc":
        warm(cache, key)
    assert cache.plan("held", "Attention") is held
    assert cache.counts.plans == 2
