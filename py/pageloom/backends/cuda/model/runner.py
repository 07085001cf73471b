"""The CUDA Runner: a decoder on one GPU, whose steps are replayed graphs.

A step is two graphs: the *body* (embedding and layers), captured once for steps without prompts and for each bucket of
prompt tokens, and the *head* (logits and candidates), once for each bucket of rows. What changes between steps is one
copy of integers to the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pageloom.backends.cuda.graphs import CapturedGraph
from pageloom.backends.cuda.model.decoder_plan import BodyBucket, DecoderPlan, HeadBucket
from pageloom.backends.cuda.model.device_errors import device_errors
from pageloom.backends.cuda.model.step_buffers import Readback
from pageloom.backends.cuda.model.step_layout import arrange
from pageloom.engine.batch import RowCandidates, RunnerLimits, StepBatch, StepTicket
from pageloom.engine.buckets import bucket_for, powers_of_two
from pageloom.engine.check_batch import check_batch
from pageloom.errors import DeviceLost, InvalidArgument
from pageloom.progress import OnProgress, Progress, ignore_progress

SMALLEST_PROMPT_BUCKET = 128
"""Tokens, from which on attention has the same tiles whatever their number."""


@dataclass(frozen=True, slots=True)
class CudaTicket:
    """A submitted step: the candidates' copy to the host, already queued; None for a step without rows."""

    readback: Readback | None


class CudaRunner:
    """Runs `StepBatch`es of one decoder in the order in which they are submitted, on the current stream."""

    def __init__(self, plan: DecoderPlan, limits: RunnerLimits) -> None:
        self._plan = plan
        self._limits = limits
        self._rows = powers_of_two(1, limits.max_sequences)
        self._prompts = powers_of_two(min(SMALLEST_PROMPT_BUCKET, limits.max_tokens), limits.max_tokens)
        self._attention = plan.explain_attention()
        self._graphs: dict[BodyBucket | HeadBucket, CapturedGraph] = {}
        self._closed = False

    @property
    def limits(self) -> RunnerLimits:
        return self._limits

    @property
    def plan(self) -> DecoderPlan:
        return self._plan

    @property
    def device_name(self) -> str:
        """The GPU, in words."""
        return f"{self._plan.operators.facts.name} (CUDA)"

    def buckets(self) -> list[BodyBucket | HeadBucket]:
        """Every bucket that a part of a step may fall into."""
        return [
            *(BodyBucket(tokens) for tokens in (0, *self._prompts)),
            *(HeadBucket(rows, greedy) for rows in self._rows for greedy in (True, False)),
        ]

    def warm_up(self, on_progress: OnProgress = ignore_progress) -> None:
        """Compile and capture every bucket, so that no step waits for it. Nothing is stored in the cache."""
        operators = self._plan.operators
        if operators.device.type != "cuda":
            return
        self._plan.step.clear()
        buckets = self.buckets()
        for done, bucket in enumerate(buckets):
            on_progress(Progress("compile", done, len(buckets)))
            step = self._step(bucket)
            self._graphs[bucket] = operators.capture(step, warm_up=step)
        on_progress(Progress("compile", len(buckets), len(buckets)))

    def submit(self, batch: StepBatch) -> CudaTicket:
        check_batch(batch, self._limits)
        if self._closed:
            raise DeviceLost("the runner is closed; load the model again")
        with device_errors():
            arrangement = arrange(batch, self._limits.max_sequences)
            self._plan.step.send(batch, arrangement)
            prompt_tokens = arrangement.prompt_tokens
            self._run(BodyBucket(bucket_for(self._prompts, prompt_tokens) if prompt_tokens else 0))
            if not batch.logits_rows:
                return CudaTicket(None)
            self._run(self._head_bucket(batch))
            return CudaTicket(self._plan.step.receive(batch))

    async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        if not isinstance(ticket, CudaTicket):
            raise InvalidArgument(f"{ticket!r} is no ticket of a CUDA runner", param="ticket")
        if ticket.readback is None:
            return ()
        with device_errors():
            return await ticket.readback.rows()

    def explain(self) -> dict[str, Any]:
        """The GPU, the memory, and how the two kinds of steps run."""
        limits, facts = self._limits, self._plan.operators.facts
        return {
            "gpu": {**asdict(facts), "description": facts.describe()},
            "kv_cache": {
                "num_blocks": limits.num_blocks,
                "block_size": limits.block_size,
                "dtype": "f16",
                "bytes": self._plan.cache_bytes,
            },
            "weights": {"bytes": self._plan.weights.num_bytes, "form": "float16, dequantised as they were loaded"},
            "steps": {
                "graphs": len(self._graphs),
                "products": "float16 summed in float32, rows apart",
                "attention": {
                    name: {"tier": told.tier, **{f"not {tier}": why for tier, why in told.reasons.items()}}
                    for name, told in self._attention.items()
                },
            },
        }

    def close(self) -> None:
        """Give the memory back. Safe to call twice."""
        self._closed = True
        self._graphs.clear()
        self._plan.release()

    def _step(self, bucket: BodyBucket | HeadBucket) -> Callable[[], None]:
        plan = self._plan
        return lambda: plan.body(bucket) if isinstance(bucket, BodyBucket) else plan.head(bucket)

    def _run(self, bucket: BodyBucket | HeadBucket) -> None:
        if bucket in self._graphs:
            self._graphs[bucket].replay()
        else:
            self._step(bucket)()

    def _head_bucket(self, batch: StepBatch) -> HeadBucket:
        greedy = batch.num_candidates == 1 and not (batch.adjustments or batch.masks or batch.targets)
        return HeadBucket(bucket_for(self._rows, len(batch.logits_rows)), greedy)
