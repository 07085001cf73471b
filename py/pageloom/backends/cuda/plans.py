"""Plans: what a call of one shape needs built before it can run without the host, above all inside a CUDA graph."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from pageloom.errors import NotWarmedUp


@dataclass(slots=True)
class Plan:
    """What outlives a call: built cuDNN graphs and counters by name. `is_warm` once a call has run with it, so that its
    kernels are compiled; `is_pinned` once a CUDA graph holds it."""

    kept: dict[Hashable, Any] = field(default_factory=dict)
    is_warm: bool = False
    is_pinned: bool = False

    def keep(self, name: Hashable, build: Callable[[], Any]) -> Any:
        """What `build` made of `name`, the first time."""
        if name not in self.kept:
            self.kept[name] = build()
        return self.kept[name]


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """How many lookups found a warm plan, how many made one, how many plans were dropped for others, how many are
    kept."""

    hits: int
    misses: int
    evictions: int
    plans: int


class PlanCache:
    """At most `capacity` plans, the least recently used dropped first; those that a CUDA graph holds are never dropped
    and do not count.

    A cache and its plans serve one stream at a time.
    """

    def __init__(self, capacity: int, is_capturing: Callable[[], bool]) -> None:
        self._capacity = capacity
        self._is_capturing = is_capturing
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    @property
    def counts(self) -> PlanCounts:
        return PlanCounts(self._hits, self._misses, self._evictions, len(self._plans))

    def plan(self, key: Hashable, what: str) -> Plan:
        """The plan of `key`, made if it is new; `what` names the call.

        Raises `NotWarmedUp` inside a capture for one that no call outside has run with: building it would end the
        capture.
        """
        plan = self._plans.get(key)
        if self._is_capturing():
            if plan is None or not plan.is_warm:
                raise NotWarmedUp(
                    f"{what} has never run with these shapes, and a plan cannot be built inside a CUDA graph capture; "
                    "call it once, or warm_up, before the capture"
                )
            plan.is_pinned = True
        if plan is not None:
            self._hits += 1
            self._plans.move_to_end(key)
            return plan
        self._misses += 1
        plan = self._plans[key] = Plan()
        self._drop()
        return plan

    def _drop(self) -> None:
        loose = [key for key, plan in self._plans.items() if not plan.is_pinned]
        for key in loose[: max(0, len(loose) - self._capacity)]:
            del self._plans[key]
            self._evictions += 1
