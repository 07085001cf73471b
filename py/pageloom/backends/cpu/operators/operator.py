"""What all operators of the CPU backend share: explain, call, record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pageloom.attention.numerics.dtypes import Array
from pageloom.attention.tiers import fastest
from pageloom.attention.validation import require_one_of
from pageloom.backends.cpu.context import CpuContext
from pageloom.backends.cpu.operators.bound import Bound, Prepared, RecordedCall
from pageloom.backends.cpu.tiers import COMPILED_TIERS, TIERS, CpuExplanation, Tier, explain_plan, require_path
from pageloom.errors import CapacityExceeded


class CpuOperator(ABC):
    """An operator with its attributes.

    Inputs go by their ONNX names and are used where they lie: numpy arrays, or anything with the buffer protocol. An
    output that may be an input's own array, such as a cache, can be given by its output name.
    """

    def __init__(self, context: CpuContext) -> None:
        self._context = context

    @abstractmethod
    def _prepared(self, given: dict[str, Any], *, may_copy: bool) -> Prepared:
        """`given` checked; an input that is no dense array is copied, or refused unless `may_copy`."""

    def explain(self, *, tier: Tier | None = None, **inputs: Any) -> CpuExplanation:
        """The tier and the instruction set that would run such a call, and the reasons against every faster one.

        Raises as a call does.
        """
        return self._bound(self._prepared(inputs, may_copy=True), tier).explain()

    def __call__(self, *, tier: Tier | None = None, **inputs: Any) -> dict[str, Array]:
        """The outputs by ONNX name. `tier` forces a tier.

        Raises `InvalidArgument` for inputs that break the contract, `NotSupported` for a tier that cannot run the call,
        `CapacityExceeded` for outputs that do not fit into memory.
        """
        bound = self._bound(self._prepared(inputs, may_copy=True), tier)
        bound.run()
        return bound.outputs

    def record(self, *, tier: Tier | None = None, **inputs: Any) -> RecordedCall:
        """A call to be made again and again. Raises as a call does, and `InvalidArgument` for arrays with gaps."""
        return RecordedCall(self._bound(self._prepared(inputs, may_copy=False), tier))

    def _bound(self, prepared: Prepared, tier: Tier | None) -> Bound:
        forced = tier or self._context.options.tier
        if forced is not None:
            require_one_of("tier", forced, TIERS)
        cannot: dict[Tier, str] = prepared.cannot()
        if self._context.why_no_kernels is not None:
            cannot |= dict.fromkeys(COMPILED_TIERS, self._context.why_no_kernels)
        found = fastest(TIERS, {known: cannot.get(known) for known in TIERS}, forced)
        usable = CpuExplanation(found.tier, found.reasons)
        try:
            return self._bound_to(prepared, usable, forced)
        except MemoryError as error:
            raise CapacityExceeded(f"the arrays of the call do not fit into memory: {error}") from error

    def _bound_to(self, prepared: Prepared, usable: CpuExplanation, forced: Tier | None) -> Bound:
        if usable.tier == "reference":
            outputs, run = prepared.bind_reference()
            return Bound(outputs, run, lambda: usable)
        free = forced is None and usable.tier == TIERS[0]
        call = prepared.bind_kernels(None if free else usable.tier)
        plan = call.plan
        if forced is not None and plan is not None:
            require_path(plan(), forced)
        if plan is None:
            return Bound(call.outputs, call.run, lambda: usable)
        levels = self._context.why_not_levels
        return Bound(call.outputs, call.run, lambda: explain_plan(plan(), usable.reasons, levels))
