"""Cases run on the operators of a CPU: on one tier of one instruction set, or as they choose. Needs numpy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pageloom.attention.cases.compare import compare_outputs, worse
from pageloom.attention.numerics.dtypes import Array, as_array, as_tensors
from pageloom.attention.tensors import Tensor
from pageloom.attention.tiers import named_tier
from pageloom.attention.vectors import Vector
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.operators.operator import CpuOperator
from pageloom.backends.cpu.tiers import TIERS, Tier
from pageloom.conformance.in_place import in_place
from pageloom.conformance.members import DEVICE_VALUES, members
from pageloom.conformance.report import Alone, CaseReport, weakest
from pageloom.errors import NotSupported

MOST_MEMBERS = 6
"""Sequences of a batch that run by themselves."""
SAME_BITS: frozenset[Tier] = frozenset({"naive", "reference"})
"""Tiers that add up a row in the same order whatever else is in the batch; on the others the rows of the whole batch
choose tiles and splits, and a member's rows are held against their budget alone."""
SHOW_SCORES: tuple[Tier, ...] = ("naive", "reference")
"""Tiers that can give the optional scores of ONNX Attention."""


class CpuCaseRunner:
    """Runs cases on `operators`; on `tier`, or each on the fastest tier that can.

    Raises `InvalidArgument` for a tier that there is not.
    """

    def __init__(self, operators: CpuOperators, tier: str | None = None) -> None:
        self._operators = operators
        self._tier: Tier | None = named_tier(TIERS, tier)
        self._level = "" if tier == "reference" else operators.level or ""

    def run(self, vector: Vector) -> CaseReport:
        """The case with outputs apart from the inputs and, where it can be so, in place of them; then its sequences.

        A case is skipped only where the tier asked for cannot run it; every other error is the case's failure.
        """
        started = time.perf_counter()
        report = CaseReport(vector.name, vector.operator, "failed", asked=self._tier or "", level=self._level)
        try:
            report = self._compared(vector, report)
        except NotSupported as error:
            report = replace(report, outcome="failed" if self._tier is None else "skipped", detail=error.message)
        except Exception as error:  # a fault of ours or of the kernels ends the case, not the run
            report = replace(report, detail=f"{type(error).__name__}: {error}")
        return replace(report, seconds=time.perf_counter() - started)

    def _compared(self, vector: Vector, report: CaseReport) -> CaseReport:
        operator = self._operator(vector)
        explained = operator.explain(tier=self._tier, **_options(vector, self._tier), **_tame(vector))
        report = replace(
            report, tier=explained.tier, faster={str(tier): why for tier, why in explained.reasons.items()}
        )
        if self._tier is not None and explained.tier != self._tier:
            return replace(report, detail=f"tier {self._tier} was asked for, and {explained.tier} would run")
        outputs = self._outputs(operator, vector)
        verdict = vector.compare(outputs)
        if verdict.passed and (shared := in_place(vector)):
            verdict = worse(verdict, vector.compare(self._outputs(operator, vector, shared)))
        report = replace(report, worst_error=verdict.worst_error, budget=verdict.budget, where=verdict.where)
        if not verdict.passed:
            return replace(report, detail=verdict.where)
        alone: list[Alone] = []
        for member in members(vector, MOST_MEMBERS):
            try:
                own = self._outputs(operator, replace(vector, inputs=member.inputs))
            except NotSupported:  # a member of one key has nothing to split, though its batch has
                continue
            verdict = compare_outputs(member.expected(vector.expected), own)
            rows = member.rows(outputs)
            same = all(own[name].data == tensor.data for name, tensor in rows.items())
            if not verdict.passed or (not same and explained.tier in SAME_BITS):
                detail = verdict.where if not verdict.passed else f"the bits differ on tier {explained.tier}"
                return replace(report, alone="off", detail=f"sequence {member.sequence} by itself: {detail}")
            alone.append("same bits" if same else "within budget")
        return replace(report, outcome="passed", alone=weakest(alone))

    def _operator(self, vector: Vector) -> CpuOperator:
        makers: dict[str, Any] = {
            "paged_attention": self._operators.paged_attention,
            "group_query_attention": self._operators.group_query_attention,
            "onnx_attention": self._operators.attention,
            "tensor_scatter": self._operators.tensor_scatter,
        }
        operator: CpuOperator = makers[vector.operator](vector.spec)
        return operator

    def _outputs(
        self, operator: CpuOperator, vector: Vector, shared: Mapping[str, str] | None = None
    ) -> dict[str, Tensor]:
        """What a call gives; a recorded one where integers break the contract, since a plain one would refuse them."""
        inputs = _arrays(vector)
        given = inputs | {output: inputs[past] for output, past in (shared or {}).items()}
        if not vector.needs & DEVICE_VALUES:
            return as_tensors(operator(tier=self._tier, **_options(vector, self._tier), **given))
        tame = _tame(vector)
        call = operator.record(tier=self._tier, **_options(vector, self._tier), **tame)
        for name, array in tame.items():
            np.copyto(array, inputs[name])
        return as_tensors(call())


def _arrays(vector: Vector) -> dict[str, Array]:
    """The inputs as arrays of their own, to be written to."""
    return {name: as_array(tensor).copy() for name, tensor in vector.inputs.items()}


def _tame(vector: Vector) -> dict[str, Array]:
    """The inputs; integers that break PagedAttention's contract are replaced by some that keep it."""
    inputs = _arrays(vector)
    if vector.needs & DEVICE_VALUES:
        offsets = inputs["cumulative_sequence_length"]
        offsets[:] = np.linspace(0, len(inputs["query"]), len(offsets)).astype(np.int32)
        inputs["past_seqlens"][:] = 0
        inputs["block_table"][:] = 0
    return inputs


def _options(vector: Vector, tier: Tier | None) -> dict[str, Any]:
    """The keywords that ask for the outputs that are expected; the scores only of tiers that can show them, or where
    the case is about them."""
    if vector.operator == "paged_attention":
        return {"log_sum_exp": True}
    if vector.operator == "onnx_attention":
        shown = tier in SHOW_SCORES or (tier is None and "qk_output" in vector.needs)
        return {"outputs": [name for name in vector.expected if name.startswith("present_") or (shown and name != "Y")]}
    return {}
