"""The CPU Runner: steps on a thread of its own, so that the event loop goes on while one computes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pageloom_cpu

from pageloom.backends.cpu.facts import cpu_facts
from pageloom.backends.cpu.model.constraints import constrained_rows, mask_logits
from pageloom.backends.cpu.model.decoder_plan import DecoderPlan
from pageloom.engine.batch import RowCandidates, RunnerLimits, StepBatch, StepTicket
from pageloom.engine.check_batch import check_batch
from pageloom.errors import DeviceLost, InvalidArgument


@dataclass(frozen=True, slots=True)
class CpuTicket:
    """A submitted step."""

    rows: Future[tuple[RowCandidates, ...]]


class CpuRunner:
    """Runs `StepBatch`es of one decoder in the order in which they are submitted."""

    def __init__(self, plan: DecoderPlan, limits: RunnerLimits) -> None:
        self._plan = plan
        self._limits = limits
        self._facts = cpu_facts()
        self._thread = ThreadPoolExecutor(1, "pageloom-cpu")
        self._closed = False

    @property
    def limits(self) -> RunnerLimits:
        return self._limits

    @property
    def plan(self) -> DecoderPlan:
        return self._plan

    @property
    def device_name(self) -> str:
        """The CPU and the instructions that its kernels use, in words."""
        return f"{self._facts.name} ({self._plan.level}, {pageloom_cpu.info()['threads']} threads)"

    def submit(self, batch: StepBatch) -> CpuTicket:
        check_batch(batch, self._limits)
        if self._closed:
            raise DeviceLost("the runner is closed; load the model again")
        return CpuTicket(self._thread.submit(self._run, batch))

    async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        if not isinstance(ticket, CpuTicket):
            raise InvalidArgument(f"{ticket!r} is no ticket of a CPU runner", param="ticket")
        # Who stops waiting does not take back a step that others follow.
        return await asyncio.shield(asyncio.wrap_future(ticket.rows))

    def explain(self) -> dict[str, Any]:
        """The CPU, the memory, and which kernels run, with the reason against each faster set of instructions."""
        limits, facts = self._limits, self._facts
        return {
            "cpu": facts.to_fields(),
            "kv_cache": {
                "num_blocks": limits.num_blocks,
                "block_size": limits.block_size,
                "dtype": "f16",
                "bytes": self._plan.cache.num_bytes,
            },
            "weights": {"bytes": self._plan.weights.num_bytes, "form": "as in the file, never whole as floats"},
            "kernels": {
                "level": self._plan.level,
                "threads": pageloom_cpu.info()["threads"],
                **{f"not {level}": reason for level, reason in facts.unavailable.items()},
            },
        }

    def close(self) -> None:
        """Ends the steps under way. Safe to call twice."""
        self._closed = True
        self._thread.shutdown()

    def _run(self, batch: StepBatch) -> tuple[RowCandidates, ...]:
        plan = self._plan
        plan.step.write(batch)
        bucket = plan.bucket(len(batch.input_ids))
        if not (batch.masks or batch.targets):
            plan.calls(bucket)()
            return plan.step.read()
        plan.calls(bucket, to_logits=True)()
        mask_logits(plan.logits, batch)
        plan.find_candidates()
        return constrained_rows(plan.logits, batch, plan.step.read())
