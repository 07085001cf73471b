"""Calls bound to their arrays: once, or to be made again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pageloom.attention.numerics.dtypes import Array
from pageloom.backends.cpu.tiers import CompiledTier, CpuExplanation, Tier

Run = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Bound:
    """`run` computes `outputs` from the inputs as they then are; `explain` says how, with the lengths as they are."""

    outputs: dict[str, Array]
    run: Run
    explain: Callable[[], CpuExplanation]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of compiled kernels. `plan` says how `run` goes with the lengths as they are, where there is a choice."""

    outputs: dict[str, Array]
    run: Run
    plan: Callable[[], Mapping[str, Any]] | None = None


class Prepared(ABC):
    """A call whose inputs were checked."""

    @abstractmethod
    def cannot(self) -> dict[Tier, str]:
        """The reason of each compiled tier that cannot run the call; the reference can run every one."""

    @abstractmethod
    def bind_reference(self) -> tuple[dict[str, Array], Run]:
        """The outputs, and what computes them in numpy."""

    @abstractmethod
    def bind_kernels(self, tier: CompiledTier | None) -> KernelCall:
        """The call on a compiled tier; None leaves the choice to the kernels, at each call."""


class RecordedCall:
    """A call bound to its arrays, to be made again: inputs, lengths and tables are read anew each time.

    Nothing is checked or allocated again: an integer that breaks the contract then means what the operator's check says
    of values that the device alone knows. `outputs` are the same arrays each time.
    """

    def __init__(self, bound: Bound) -> None:
        self.outputs = bound.outputs
        self._run = bound.run
        self._explain = bound.explain

    def __call__(self) -> dict[str, Array]:
        """Compute `outputs`, and return them."""
        self._run()
        return self.outputs

    def explain(self) -> CpuExplanation:
        """The tier that a call takes with the lengths as they are now, and the reason against every faster one."""
        return self._explain()
