"""The one place that touches the engine: admits requests, starts them, and sends their events back in parcels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from pageloom.answer_rules import AnswerRule
from pageloom.engine.engine import RequestHandle
from pageloom.engine.events import Event
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.errors import CapacityExceeded, DeviceLost
from pageloom.jobs import Job
from pageloom.language_model import LanguageModel
from pageloom.worker.errors import QueueFull, Stopping

Parcel = list[tuple[int, int, Event]]
"""(id of the generation, index of its job, event), in order."""


class EngineHost:
    """Belongs to the engine's event loop. A generation is the jobs of one request, under an id of the caller's."""

    def __init__(self, model: LanguageModel, max_queue: int, send: Callable[[Parcel], None]) -> None:
        """`max_queue` jobs may wait for a row of the step; `send` gets one parcel for each turn of the loop."""
        self._model = model
        self._capacity = model.runner.limits.max_sequences + max_queue
        self._send = send
        longest = max(len(model.tokenizer.token_bytes(token)) for token in range(model.tokenizer.vocab_size))
        self._most_prompt_bytes = model.context_length * longest
        self._outbox: Parcel = []
        self._sizes: dict[int, int] = {}
        self._handles: dict[int, list[RequestHandle]] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def lost(self) -> DeviceLost | None:
        """Why the device is gone, if it is: every request fails from then on."""
        failure = self._model.engine.failure
        return failure if isinstance(failure, DeviceLost) else None

    async def start(self, generation: int, jobs: Sequence[Job]) -> None:
        """Queue all of `jobs` or none.

        Raises `QueueFull` where they find no room now, `CapacityExceeded` where they never could, `Stopping`, and what
        `LanguageModel.start` raises.
        """
        if self._stopping:
            raise Stopping("the worker is stopping; ask again once it runs")
        if len(jobs) > self._capacity:
            raise CapacityExceeded(f"{len(jobs)} answers at once; this worker takes {self._capacity}", param="n")
        taken = sum(self._sizes.values())
        if taken + len(jobs) > self._capacity:
            raise QueueFull(f"{taken} of {self._capacity} places are taken and {len(jobs)} are needed; try again later")
        self._sizes[generation] = len(jobs)
        handles: list[RequestHandle] = []
        try:
            prompts, rules = await asyncio.to_thread(self._encode, jobs)
            for prompt, job, rule in zip(prompts, jobs, rules, strict=True):
                handles.append(self._model.submit(prompt, job, rule))
        except BaseException:
            for handle in handles:
                handle.abort()
            del self._sizes[generation]
            raise
        self._handles[generation] = handles
        task = asyncio.ensure_future(self._follow(generation, handles))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    def abort(self, generation: int) -> None:
        """End what runs of a generation. Nothing happens where it has ended or never was."""
        for handle in self._handles.get(generation, ()):
            handle.abort()

    def stop(self) -> None:
        """Refuse what comes from now on; what runs goes on."""
        self._stopping = True

    def abort_all(self) -> None:
        for generation in list(self._handles):
            self.abort(generation)

    async def stats(self) -> EngineStats:
        return self._model.stats()

    async def snapshot(self) -> EngineSnapshot:
        return self._model.snapshot()

    def _encode(self, jobs: Sequence[Job]) -> tuple[list[list[int]], list[AnswerRule]]:
        """The prompts' token ids, and what keeps each answer to its form; the jobs of one prompt, which follow each
        other, are encoded once.

        Raises `CapacityExceeded` for a text that no number of tokens within the context could be, before the time that
        its tokens would take, and as `LanguageModel.encode_job` does.
        """
        prompts: list[list[int]] = []
        for before, job in zip([None, *jobs], jobs, strict=False):
            same = before is not None and replace(job, index=before.index, sampling=before.sampling) == before
            if not same and (size := _text_bytes(job)) > self._most_prompt_bytes:
                raise CapacityExceeded(
                    f"the prompt has {size} bytes of text; the context of {self._model.context_length} tokens holds at "
                    f"most {self._most_prompt_bytes}. Shorten the prompt",
                    param="prompt",
                )
            prompts.append(prompts[-1] if same else self._model.encode_job(job))
        return prompts, [self._model.rule_of(job.form) for job in jobs]

    async def _follow(self, generation: int, handles: Sequence[RequestHandle]) -> None:
        await asyncio.gather(*(self._forward(generation, index, handle) for index, handle in enumerate(handles)))
        del self._handles[generation]
        del self._sizes[generation]

    async def _forward(self, generation: int, index: int, handle: RequestHandle) -> None:
        async for event in handle:
            if not self._outbox:
                asyncio.get_running_loop().call_soon(self._flush)
            self._outbox.append((generation, index, event))

    def _flush(self) -> None:
        parcel, self._outbox = self._outbox, []
        self._send(parcel)


def _text_bytes(job: Job) -> int:
    """Bytes of the texts that a job's prompt is made of."""
    texts = [job.prompt]
    for message in job.messages:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else cast(list[dict[str, str]], content)
        texts += [part["text"] for part in parts]
    return sum(len(text.encode()) for text in texts)
