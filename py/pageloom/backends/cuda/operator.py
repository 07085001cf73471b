"""What all operators of the CUDA backend share: explain, call, record."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import torch

from pageloom.attention.tiers import Explanation
from pageloom.backends.cuda.context import Context
from pageloom.backends.cuda.graphs import capture
from pageloom.backends.cuda.plans import Plan
from pageloom.backends.cuda.tensors import Operand, to_numpy
from pageloom.backends.cuda.tiers import Tier, choose_tier

ALIGNMENT = 16
"""Bytes that a vector load takes; kernels are compiled apart for pointers that it divides."""
SDPA_NAMES: Mapping[Tier, str] = {
    "fused": "DECODER_ATTENTION",
    "triton": "DECODER_ATTENTION",
    "cudnn": "CUDNN_FLASH_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "unfused": "MATH",
}
"""ONNX Runtime's words for the tiers, in the line that its debug switch asks for."""
_log = logging.getLogger(__name__)


class Prepared(ABC):
    """A call whose inputs were checked and lie on the device, before anything is allocated for it."""

    operands: Mapping[str, Operand]

    @abstractmethod
    def cannot(self) -> Mapping[Tier, str]:
        """The reason against each tier that cannot run the call."""

    @abstractmethod
    def would_not_help(self) -> Mapping[Tier, str]:
        """The reason against each tier that a slower one beats."""

    @abstractmethod
    def statics(self) -> Hashable:
        """What else than tensors' types, shapes and alignment a plan depends on."""

    @abstractmethod
    def run(self, tier: Tier, plan: Plan) -> dict[str, torch.Tensor]:
        """Queue the call; returns its outputs by name."""

    @abstractmethod
    def source(self, output: str) -> str:
        """The input whose memory, host or device, decides where `output` is given."""

    def moved(self) -> Sequence[torch.Tensor]:
        """The inputs that a second run would find changed, and not run to the same end on."""
        return ()

    def key(self, tier: Tier) -> Hashable:
        """Of the plan: two calls with the same key run the same kernels, compiled for the same arguments."""
        tensors = tuple(
            (name, operand.tensor.dtype, tuple(operand.tensor.shape), operand.tensor.data_ptr() % ALIGNMENT)
            for name, operand in sorted(self.operands.items())
        )
        return type(self).__name__, tier, self.statics(), tensors


class RecordedCall:
    """A call on tensors of the device, to be made again and again: `submit` replays it as one CUDA graph.

    Lengths, tables and every other tensor are read anew each time; nothing is checked again. `outputs` are the same
    tensors each time.
    """

    def __init__(self, context: Context, prepared: Prepared, explanation: Explanation[Tier], what: str) -> None:
        self.explanation = explanation
        self.outputs: dict[str, torch.Tensor] = {}

        def step() -> None:
            plan = context.plans.plan(prepared.key(explanation.tier), what)
            self.outputs = prepared.run(explanation.tier, plan)
            plan.is_warm = True

        def warm_up() -> None:
            before = [tensor.clone() for tensor in prepared.moved()]
            step()
            for tensor, saved in zip(prepared.moved(), before, strict=True):
                tensor.copy_(saved)

        self._submit = capture(context, step, warm_up).replay

    def submit(self) -> None:
        """Queue the call once more; nothing is read back."""
        self._submit()


class CudaOperator(ABC):
    """An operator with its attributes.

    Inputs go by their ONNX names: PyTorch tensors of the device are used where they lie, caches updated in place;
    numpy's arrays and other host memory are copied. Outputs are PyTorch tensors on the device where the input they
    follow (Q, or the cache) is one, numpy arrays otherwise. Lengths in host memory are checked; what the device alone
    knows means what the operator's check module says.
    """

    name: str
    tiers: Collection[Tier]

    def __init__(self, context: Context) -> None:
        self._context = context

    @abstractmethod
    def _prepared(self, given: dict[str, Any]) -> Prepared:
        """`given` checked, and placed on the device."""

    def explain(self, *, tier: Tier | None = None, **inputs: Any) -> Explanation[Tier]:
        """The tier that would run such a call, and the reason against every faster one. Raises as a call does."""
        return self._explained(self._prepared(inputs), tier)

    def __call__(self, *, tier: Tier | None = None, **inputs: Any) -> dict[str, Any]:
        """The outputs by ONNX name. `tier` forces a tier.

        Raises `InvalidArgument` for inputs that break the contract, `NotSupported` for a tier that cannot run the call,
        `NotWarmedUp` inside a CUDA graph capture for a call that has not run before.
        """
        prepared = self._prepared(inputs)
        explanation = self._explained(prepared, tier)
        plan = self._context.plans.plan(prepared.key(explanation.tier), self.name)
        outputs = prepared.run(explanation.tier, plan)
        plan.is_warm = True
        return {name: self._given_back(prepared, name, tensor) for name, tensor in outputs.items()}

    def record(self, *, tier: Tier | None = None, **inputs: Any) -> RecordedCall:
        """A call to be replayed. It runs once for its plan, so new tokens are stored. Raises as a call does."""
        prepared = self._prepared(inputs)
        return RecordedCall(self._context, prepared, self._explained(prepared, tier), self.name)

    def _explained(self, prepared: Prepared, tier: Tier | None) -> Explanation[Tier]:
        cannot = dict(prepared.cannot())
        if reason := self._context.facts.why_no_triton:
            cannot |= (
                dict.fromkeys(("fused", "triton", "cudnn", "unfused"), reason) if self.appends else {"triton": reason}
            )
        explanation = choose_tier(self.tiers, cannot, prepared.would_not_help(), self._context.policy, tier)
        if self._context.policy.logs:
            query = next(iter(prepared.operands.values())).tensor
            kernel = SDPA_NAMES[explanation.tier]
            _log.info("Operator=%s Node= DataType=%s SdpaKernel=%s", self.name, query.dtype, kernel)
        return explanation

    appends = False
    """Whether every tier stores new tokens with a Triton kernel first."""

    @staticmethod
    def _given_back(prepared: Prepared, name: str, tensor: torch.Tensor) -> Any:
        operand = prepared.operands.get(prepared.source(name))
        return to_numpy(tensor) if operand is not None and operand.host is not None else tensor
