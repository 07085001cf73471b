"""The WebGPU Runner: a decoder on the device, run by replaying recorded steps.

A step is two recordings. The *body* (embedding and layers) is recorded once for each bucket of (tokens, KV length), the
*head* (wanted rows, logits, candidates) once for each bucket of (rows, candidates). What changes between steps is one
write to the step buffer; grids are the bucket's, and shaders read the exact counts from that buffer.
"""

from __future__ import annotations

import asyncio
import itertools
import operator
import struct
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from pageloom.backends.webgpu.constraint_layout import ConstraintLayout
from pageloom.backends.webgpu.decoder_plan import BodyBucket, DecoderPlan, HeadBucket
from pageloom.backends.webgpu.device import Copy, Device, Dispatch, Pipeline, Recording
from pageloom.backends.webgpu.kv_cache import SHORT_NAMES
from pageloom.backends.webgpu.program import PlannedDispatch, ProgramKey, Programs
from pageloom.backends.webgpu.step_layout import StepLayout
from pageloom.engine.batch import LogitTarget, RowCandidates, RunnerLimits, StepBatch, StepTicket
from pageloom.engine.buckets import bucket_for, powers_of_two
from pageloom.engine.check_batch import check_batch
from pageloom.errors import InvalidArgument
from pageloom.progress import OnProgress, Progress, ignore_progress

SMALLEST_KV_BUCKET = 256


@dataclass(frozen=True, slots=True)
class WebGpuTicket:
    """A submitted step: the readbacks of its candidates and of its wanted logits, already queued."""

    num_rows: int
    num_candidates: int
    readback: Awaitable[bytes] | None
    targets: tuple[LogitTarget, ...] = ()
    target_readback: Awaitable[bytes] | None = None


class WebGpuRunner:
    """Runs `StepBatch`es of one decoder on one device, in the order in which they are submitted."""

    def __init__(self, device: Device, programs: Programs, plan: DecoderPlan, limits: RunnerLimits) -> None:
        """The runner owns `device` and all that is on it: `close` closes it."""
        self._device = device
        self._programs = programs
        self._plan = plan
        self._limits = limits
        self._layout = StepLayout(limits, plan.tile_tokens)
        self._constraint_layout = ConstraintLayout(limits)
        self._token_buckets = powers_of_two(1, limits.max_tokens)
        self._row_buckets = powers_of_two(1, limits.max_sequences)
        self._candidate_buckets = tuple(sorted({1, limits.max_candidates}))
        max_kv_len = limits.max_blocks_per_sequence * limits.block_size
        self._kv_buckets = powers_of_two(min(SMALLEST_KV_BUCKET, max_kv_len), max_kv_len)
        self._pipelines: dict[str, Pipeline] = {}
        self._bodies: dict[BodyBucket, Recording] = {}
        self._heads: dict[HeadBucket, Recording] = {}

    @property
    def limits(self) -> RunnerLimits:
        return self._limits

    @property
    def device(self) -> Device:
        return self._device

    @property
    def plan(self) -> DecoderPlan:
        return self._plan

    def body_buckets(self) -> list[BodyBucket]:
        """Every bucket that a step may fall into."""
        return [
            BodyBucket(tokens, kv_len, decodes_only)
            for tokens in self._token_buckets
            for kv_len in self._kv_buckets
            for decodes_only in (True, False)
            if not decodes_only or tokens <= self._row_buckets[-1]
        ]

    def head_buckets(self) -> list[HeadBucket]:
        return [
            HeadBucket(rows, count, constrained)
            for rows in self._row_buckets
            for count in self._candidate_buckets
            for constrained in (False, True)
        ]

    async def compile(self, on_progress: OnProgress = ignore_progress) -> None:
        """Compile every program of every bucket, so that no step waits for a compiler."""
        plans = [*map(self._plan.body, self.body_buckets()), *map(self._plan.head, self.head_buckets())]
        keys = {str(planned.key): planned.key for plan in plans for planned in plan}
        done = 0

        async def compile_one(name: str, key: ProgramKey) -> None:
            nonlocal done
            self._pipelines[name] = await self._programs.pipeline(key)
            done += 1
            on_progress(Progress("compile", done, len(keys)))

        await asyncio.gather(*(compile_one(name, key) for name, key in keys.items()))

    def submit(self, batch: StepBatch) -> WebGpuTicket:
        check_batch(batch, self._limits)
        self._device.write(self._plan.step, 0, self._layout.pack(batch))
        self._device.submit(self._body(self._body_bucket(batch)))
        num_rows = len(batch.logits_rows)
        if not num_rows:
            return WebGpuTicket(0, 0, None)
        head = HeadBucket(
            bucket_for(self._row_buckets, num_rows),
            bucket_for(self._candidate_buckets, batch.num_candidates),
            constrained=bool(batch.masks or batch.targets),
        )
        if head.constrained:
            self._device.write(self._plan.constraints.constraints, 0, self._constraint_layout.pack(batch))
        self._device.submit(self._head(head))
        size = 4 * num_rows * self._plan.candidate_words
        readback = self._device.read(self._plan.candidates, 0, size)
        if not batch.targets:
            return WebGpuTicket(num_rows, batch.num_candidates, readback)
        wanted = self._device.read(self._plan.constraints.target_logits, 0, 4 * len(batch.targets))
        return WebGpuTicket(num_rows, batch.num_candidates, readback, batch.targets, wanted)

    async def result(self, ticket: StepTicket) -> tuple[RowCandidates, ...]:
        if not isinstance(ticket, WebGpuTicket):
            raise InvalidArgument(f"{ticket!r} is no ticket of a WebGPU runner", param="ticket")
        if ticket.readback is None:
            return ()
        data = await ticket.readback
        wanted: list[list[float]] = [[] for _ in range(ticket.num_rows)]
        if ticket.target_readback is not None:
            values = struct.unpack(f"<{len(ticket.targets)}f", await ticket.target_readback)
            for target, value in zip(ticket.targets, values, strict=True):
                wanted[target.row].append(value)
        stride, most, count = self._plan.candidate_words, self._limits.max_candidates, ticket.num_candidates
        rows = []
        for row in range(ticket.num_rows):
            start = 4 * row * stride
            token_ids = struct.unpack_from(f"<{count}I", data, start)
            logits = struct.unpack_from(f"<{count}f", data, start + 4 * most)
            (logsumexp,) = struct.unpack_from("<f", data, start + 8 * most)
            rows.append(RowCandidates(token_ids, logits, logsumexp, tuple(wanted[row])))
        return tuple(rows)

    @property
    def device_name(self) -> str:
        return self._device.info.name

    def explain(self) -> dict[str, Any]:
        """The adapter, the KV pool, and which variants a single decode and the largest step run, with reasons."""
        info, limits = self._device.info, self._limits
        longest = self._kv_buckets[-1]
        return {
            "adapter": {
                "description": info.description,
                "vendor": info.vendor,
                "architecture": info.architecture,
                "class": info.adapter_class,
                "home": info.home,
                "f16": "native" if info.has_f16 else "packed in 32-bit words: the adapter lacks shader-f16",
            },
            "kv_cache": {
                "num_blocks": limits.num_blocks,
                "block_size": limits.block_size,
                "dtype": SHORT_NAMES[self._plan.cache.dtype],
                "bytes": self._plan.cache.num_bytes,
            },
            "weights": {"bytes": self._plan.weights.num_bytes},
            "steps": {
                "one decode": self._plan.explain(BodyBucket(1, longest, decodes_only=True)),
                f"{limits.max_tokens} tokens": self._plan.explain(
                    BodyBucket(limits.max_tokens, longest, decodes_only=False)
                ),
            },
        }

    def close(self) -> None:
        self._bodies.clear()
        self._heads.clear()
        self._plan.destroy()
        self._device.close()

    def _body_bucket(self, batch: StepBatch) -> BodyBucket:
        new_tokens = [end - start for start, end in itertools.pairwise(batch.cumulative_sequence_length)]
        longest = max(map(operator.add, batch.past_seqlens, new_tokens))
        tokens = bucket_for(self._token_buckets, len(batch.input_ids))
        decodes_only = max(new_tokens) == 1 and tokens <= self._row_buckets[-1]
        return BodyBucket(tokens, bucket_for(self._kv_buckets, longest), decodes_only)

    def _body(self, bucket: BodyBucket) -> Recording:
        if bucket not in self._bodies:
            self._bodies[bucket] = self._record(self._plan.body(bucket), str(bucket))
        return self._bodies[bucket]

    def _head(self, bucket: HeadBucket) -> Recording:
        if bucket not in self._heads:
            self._heads[bucket] = self._record(self._plan.head(bucket), str(bucket))
        return self._heads[bucket]

    def _record(self, planned: Sequence[PlannedDispatch], label: str) -> Recording:
        commands: list[Dispatch | Copy] = [
            Dispatch(self._pipelines[str(one.key)], one.buffers, one.grid, one.label) for one in planned
        ]
        return self._device.record(commands, label)
