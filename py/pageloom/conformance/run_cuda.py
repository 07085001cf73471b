"""Cases run on the operators of an NVIDIA GPU: on one tier, or as they choose. Needs numpy and PyTorch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pageloom.attention.cases.compare import compare_outputs, worse
from pageloom.attention.numerics.dtypes import as_array, as_tensor
from pageloom.attention.tensors import Tensor
from pageloom.attention.tiers import named_tier
from pageloom.attention.vectors import Vector
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.operator import CudaOperator
from pageloom.backends.cuda.tensors import ON_HOST, from_numpy, to_numpy
from pageloom.backends.cuda.tiers import CACHED_TIERS, ONNX_TIERS, SCATTER_TIERS, TIERS, Tier
from pageloom.conformance.in_place import in_place
from pageloom.conformance.members import DEVICE_VALUES, members
from pageloom.conformance.report import Alone, CaseReport, weakest
from pageloom.errors import NotSupported, PageloomError

MOST_MEMBERS = 3
"""Sequences of a batch that run by themselves: each may compile kernels of its own."""
LENGTHS = (
    "cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping", "seqlens_k", "query_seqlens",
    "nonpad_kv_seqlen", "write_indices",
)  # fmt: skip
TIERS_OF: Mapping[str, tuple[Tier, ...]] = {
    "paged_attention": CACHED_TIERS,
    "group_query_attention": CACHED_TIERS,
    "onnx_attention": ONNX_TIERS,
    "tensor_scatter": SCATTER_TIERS,
}


class CudaCaseRunner:
    """Runs cases on `operators`; on `tier`, or each on the fastest tier that can.

    Raises `InvalidArgument` for a tier that there is not.
    """

    def __init__(self, operators: CudaOperators, device: torch.device, tier: str | None = None) -> None:
        self._operators = operators
        self._device = device
        self._tier: Tier | None = named_tier(TIERS, tier)

    def has_tier_of(self, operator: str) -> bool:
        """Whether its tier, if it has one, is among those of an operator."""
        return self._tier is None or self._tier in TIERS_OF[operator]

    def run(self, vector: Vector) -> CaseReport:
        """The case with its lengths in host memory, then from a recording that has all on the device; then its
        sequences.

        A case is skipped only where the tier asked for cannot run it; every other error is the case's failure.
        """
        started = time.perf_counter()
        report = CaseReport(vector.name, vector.operator, "failed", asked=self._tier or "")
        try:
            report = self._compared(vector, report)
        except PageloomError as error:
            skipped = isinstance(error, NotSupported) and self._tier is not None
            report = replace(report, outcome="skipped" if skipped else "failed", detail=error.message)
        except Exception as error:  # what a compiler, a driver or a library raises is the case's failure too
            report = replace(report, detail=f"{type(error).__name__}: {error}"[:2000])
        return replace(report, seconds=time.perf_counter() - started)

    def _compared(self, vector: Vector, report: CaseReport) -> CaseReport:
        operator = self._operator(vector)
        breaks_contract = bool(vector.needs & DEVICE_VALUES)
        given = self._given(vector, lengths_on_device=breaks_contract)
        explained = operator.explain(tier=self._tier, **_options(vector, self._tier), **given)
        report = replace(
            report, tier=explained.tier, faster={str(tier): why for tier, why in explained.reasons.items()}
        )
        if self._tier is not None and explained.tier != self._tier:
            return replace(report, detail=f"tier {self._tier} was asked for, and {explained.tier} would run")
        outputs = _tensors(operator(tier=self._tier, **_options(vector, self._tier), **given))
        verdict = vector.compare(outputs)
        if verdict.passed:
            verdict = worse(verdict, vector.compare(self._recorded(operator, vector)))
        report = replace(report, worst_error=verdict.worst_error, budget=verdict.budget, where=verdict.where)
        if not verdict.passed:
            return replace(report, detail=verdict.where)
        alone: list[Alone] = []
        for member in members(vector, MOST_MEMBERS):
            own = self._given(replace(vector, inputs=member.inputs), lengths_on_device=False)
            results = _tensors(operator(tier=self._tier, **_options(vector, self._tier), **own))
            verdict = compare_outputs(member.expected(vector.expected), results)
            if not verdict.passed:
                return replace(report, alone="off", detail=f"sequence {member.sequence} by itself: {verdict.where}")
            same = all(results[name].data == tensor.data for name, tensor in member.rows(outputs).items())
            alone.append("same bits" if same else "within budget")
        return replace(report, outcome="passed", alone=weakest(alone))

    def _operator(self, vector: Vector) -> CudaOperator:
        makers: dict[str, Any] = {
            "paged_attention": self._operators.paged_attention,
            "group_query_attention": self._operators.group_query_attention,
            "onnx_attention": self._operators.attention,
            "tensor_scatter": self._operators.tensor_scatter,
        }
        operator: CudaOperator = makers[vector.operator](vector.spec)
        return operator

    def _recorded(self, operator: CudaOperator, vector: Vector) -> dict[str, Tensor]:
        """What a replay gives, with all that can be on the device there, caches updated in place where they can be."""
        given = self._given(vector, lengths_on_device=True)
        given |= {output: given[past] for output, past in in_place(vector).items()}
        if self._device.type != "cuda":
            return _tensors(operator(tier=self._tier, **_options(vector, self._tier), **given))
        call = operator.record(tier=self._tier, **_options(vector, self._tier), **given)
        call.submit()
        return _tensors(call.outputs)

    def _given(self, vector: Vector, *, lengths_on_device: bool) -> dict[str, Any]:
        """The inputs, tensors of the device but for those that stay on the host.

        Lengths that keep the contract have their bounds beside them where they are on the device, as an engine gives
        them, unless the case gives bounds of its own.
        """
        host = ON_HOST if lengths_on_device else (*ON_HOST, *LENGTHS)
        arrays = {name: as_array(tensor) for name, tensor in vector.inputs.items()}
        if lengths_on_device and vector.operator == "paged_attention" and not vector.needs & DEVICE_VALUES:
            new = np.diff(arrays["cumulative_sequence_length"])
            bounds = [new.max(), (arrays["past_seqlens"] + new).max()]
            arrays.setdefault("attention_metadata", np.array(bounds, np.int32))
        return {
            name: array.copy() if name in host else from_numpy(array, self._device) for name, array in arrays.items()
        }


def _tensors(outputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: as_tensor(to_numpy(output) if isinstance(output, torch.Tensor) else output)
        for name, output in outputs.items()
    }


def _options(vector: Vector, tier: Tier | None) -> dict[str, Any]:
    """The keywords that ask for every output that is expected, but for optional ones that the tier does not keep."""
    if vector.operator == "paged_attention":
        return {"log_sum_exp": tier not in (None, "cudnn")}
    if vector.operator == "onnx_attention":
        wants_scores = vector.spec.qk_matmul_output_mode > 0 or vector.spec.softcap > 0
        return {"outputs": [name for name, want in vector.expected.items() if wants_scores or not want.optional]}
    return {}
