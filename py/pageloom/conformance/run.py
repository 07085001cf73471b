"""Cases run on the WebGPU operators of one device. Standard library only: it runs natively and in the tab."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pageloom.attention.cases.compare import compare_outputs
from pageloom.attention.tensors import Tensor
from pageloom.attention.tiers import named_tier
from pageloom.attention.vectors import Vector
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.backends.webgpu.operators.operands import DeviceTensor
from pageloom.backends.webgpu.operators.paged_attention import WebGpuPagedAttention
from pageloom.backends.webgpu.operators.tiers import TIERS, Tier
from pageloom.conformance.members import DEVICE_VALUES, Member, members
from pageloom.conformance.report import Alone, CaseReport, weakest
from pageloom.errors import DeviceLost, NotSupported, PageloomError

MOST_MEMBERS = 6
"""Sequences of a batch that run by themselves."""
INTEGERS = ("cumulative_sequence_length", "past_seqlens", "block_table", "slot_mapping")


class CaseRunner:
    """Runs cases on a device, which stays the caller's; on `tier`, or each on the fastest tier that can.

    Raises `InvalidArgument` for a tier that there is not.
    """

    def __init__(self, device: Device, tier: str | None = None) -> None:
        self._device = device
        self._operators = WebGpuOperators(device)
        self._tier: Tier | None = named_tier(TIERS, tier)

    async def run(self, vector: Vector) -> CaseReport:
        """The batch, and then members of it by themselves.

        A case is skipped only where the tier asked for cannot run it; every other error is the case's failure but a
        lost device, which raises `DeviceLost`.
        """
        started = time.perf_counter()
        report = CaseReport(vector.name, vector.operator, "failed")
        try:
            report = await self._compared(vector, report)
        except DeviceLost as error:
            raise DeviceLost(f"{vector.name}: {error.message}") from error
        except PageloomError as error:
            skipped = isinstance(error, NotSupported) and self._tier is not None
            report = replace(report, outcome="skipped" if skipped else "failed", detail=error.message)
        return replace(report, seconds=time.perf_counter() - started)

    async def _compared(self, vector: Vector, report: CaseReport) -> CaseReport:
        operator = self._operators.paged_attention(vector.spec)
        with self._placed(vector) as inputs:
            explained = operator.explain(tier=self._tier, log_sum_exp=True, **inputs)
            report = replace(
                report, tier=explained.tier, faster={str(name): why for name, why in explained.reasons.items()}
            )
            outputs = await self._outputs(operator, inputs)
        verdict = vector.compare(outputs)
        report = replace(report, worst_error=verdict.worst_error, budget=verdict.budget, where=verdict.where)
        if not verdict.passed:
            return replace(report, detail=verdict.where)
        alone: list[Alone] = []
        for member in members(vector, MOST_MEMBERS):
            how, detail = await self._alone(operator, vector, member, outputs, explained.tier)
            if how == "off":
                return replace(report, alone=how, detail=f"sequence {member.sequence} by itself: {detail}")
            alone.append(how)
        return replace(report, outcome="passed", alone=weakest(alone))

    async def _alone(
        self, operator: WebGpuPagedAttention, vector: Vector, member: Member, batch: Mapping[str, Tensor], tier: Tier
    ) -> tuple[Alone, str]:
        """How a member's own call comes out beside its rows of the batch, and what is wrong with it.

        Every tier adds up a row in an order that does not depend on the batch: on the same tier the bits must be the
        same, on another one its rows are held against their budget alone.
        """
        outputs = await self._outputs(operator, member.inputs)
        verdict = compare_outputs(member.expected(vector.expected), outputs)
        if not verdict.passed:
            return "off", verdict.where
        rows = member.rows(batch)
        different = [name for name, tensor in rows.items() if outputs[name].data != tensor.data]
        if not different:
            return "same bits", ""
        if operator.explain(tier=self._tier, log_sum_exp=True, **member.inputs).tier == tier:
            return "off", f"{' and '.join(different)} differ from the batch's bits on tier {tier}"
        return "within budget", ""

    async def _outputs(self, operator: WebGpuPagedAttention, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        outputs = await operator.run(tier=self._tier, log_sum_exp=True, **inputs)
        return {name: output for name, output in outputs.items() if isinstance(output, Tensor)}

    @contextmanager
    def _placed(self, vector: Vector) -> Iterator[dict[str, Any]]:
        """The inputs; where the integers break the contract they are on the device, since a host would refuse them."""
        inputs: dict[str, Any] = dict(vector.inputs)
        placed: list[DeviceTensor] = []
        if vector.needs & DEVICE_VALUES:
            for name in INTEGERS:
                if name in vector.inputs:
                    tensor = vector.inputs[name]
                    buffer = self._device.buffer(tensor.info.num_bytes, name)
                    self._device.write(buffer, 0, tensor.data)
                    placed.append(DeviceTensor(buffer, tensor.info.dtype, tensor.info.shape))
                    inputs[name] = placed[-1]
        try:
            yield inputs
        finally:
            for tensor_on_device in placed:
                tensor_on_device.buffer.destroy()
