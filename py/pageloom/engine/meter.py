"""Counts what the engine does, for its statistics and its timeline."""

from __future__ import annotations

import time
from collections import deque

from pageloom.engine.snapshot import EngineStats, RequestRecord, StepRecord
from pageloom.engine.step import StepPlan
from pageloom.kv.block_pool import BlockPool

ENDED_LENGTH = 64


class Meter:
    def __init__(self, timeline_length: int) -> None:
        self.timeline: deque[StepRecord] = deque(maxlen=timeline_length)
        self.ended: deque[RequestRecord] = deque(maxlen=ENDED_LENGTH)
        self._steps = 0
        self._prefill_tokens = 0
        self._decode_tokens = 0
        self._output_tokens = 0
        self._peak_blocks = 0
        self._peak_shared_blocks = 0
        self._busy_seconds = 0.0
        self._last_end = 0.0

    def observe(self, pool: BlockPool) -> None:
        """Look at the pool as a step is submitted, when it is fullest."""
        self._peak_blocks = max(self._peak_blocks, pool.num_used)
        self._peak_shared_blocks = max(self._peak_shared_blocks, pool.num_shared)

    def record(self, plan: StepPlan, submitted_at: float) -> None:
        """Take down a committed step; `submitted_at` as `time.perf_counter()` gave it."""
        now = time.perf_counter()
        seconds = now - max(submitted_at, self._last_end)
        self._last_end = now
        decode_tokens = plan.num_decode_tokens
        prefill_tokens = plan.num_tokens - decode_tokens
        self.timeline.append(StepRecord(self._steps, len(plan.chunks), prefill_tokens, decode_tokens, 1000 * seconds))
        self._steps += 1
        self._prefill_tokens += prefill_tokens
        self._decode_tokens += decode_tokens
        self._busy_seconds += seconds

    def count_outputs(self, num_tokens: int) -> None:
        self._output_tokens += num_tokens

    def stats(
        self, pool: BlockPool, *, running: int, waiting: int, cached_tokens: int, preemptions: int
    ) -> EngineStats:
        return EngineStats(
            running=running,
            waiting=waiting,
            steps=self._steps,
            prefill_tokens=self._prefill_tokens,
            decode_tokens=self._decode_tokens,
            output_tokens=self._output_tokens,
            cached_tokens=cached_tokens,
            preemptions=preemptions,
            evictions=pool.num_evicted,
            num_blocks=pool.num_blocks,
            used_blocks=pool.num_used,
            shared_blocks=pool.num_shared,
            peak_blocks=self._peak_blocks,
            peak_shared_blocks=self._peak_shared_blocks,
            busy_seconds=self._busy_seconds,
        )
