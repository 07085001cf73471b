"""A loaded model: prompts in, completions out, natively and in the tab alike.

model = await pageloom.load("model.gguf")
completions = await model.generate(["What is gravity?", "What is a page table?"], max_tokens=32)
await model.close()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pageloom.answer_form import ANSWER_FIELDS, parse_answer_form
from pageloom.answer_rules import AnswerRule, answer_rules
from pageloom.engine.batch import Runner
from pageloom.engine.engine import Engine, RequestHandle
from pageloom.engine.events import Completion, Event
from pageloom.engine.sampling_params import SamplingParams
from pageloom.engine.snapshot import EngineSnapshot, EngineStats
from pageloom.errors import InvalidArgument, PageloomError
from pageloom.jobs import Job, Message, RefusedJob, error_row, parse_job, result_row
from pageloom.model.chat_encoding import encode_chat
from pageloom.model.chat_template import ChatTemplate
from pageloom.model.decoder import ModelDescription
from pageloom.model.gguf_tokenizer import GgufTokenizer

OnEvent = Callable[[int, Event], None]
OnRow = Callable[[dict[str, object]], None]


class ModelRunner(Runner, Protocol):
    """A Runner that says of itself what it runs on."""

    @property
    def device_name(self) -> str: ...

    def explain(self) -> dict[str, Any]: ...


class LanguageModel:
    """One model on one device, with its engine. Belongs to the event loop that made it."""

    def __init__(
        self,
        description: ModelDescription,
        tokenizer: GgufTokenizer,
        template: ChatTemplate,
        engine: Engine[ModelRunner],
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.description = description
        self.tokenizer = tokenizer
        self.template = template
        self.warnings = warnings
        """What a user should be told about the file."""
        self.engine = engine
        self.rule_of = answer_rules(tokenizer, description.decoder.vocab_size)
        """What keeps one answer to the form of its job."""

    @property
    def runner(self) -> ModelRunner:
        return self.engine.runner

    @property
    def name(self) -> str:
        """What the file calls the model, or its architecture."""
        return self.description.name

    @property
    def device_name(self) -> str:
        """The adapter or CPU that computes, in words."""
        return self.runner.device_name

    @property
    def context_length(self) -> int:
        """Tokens of one sequence, prompt and answer: what was chosen, the model's context or what the pool holds."""
        limits = self.runner.limits
        pool = min(limits.num_blocks, limits.max_blocks_per_sequence) * limits.block_size
        return min(self.engine.context_length, pool)

    def explain(self) -> dict[str, Any]:
        """The device, the memory, and what runs each kind of operation, with why nothing faster does."""
        return self.runner.explain()

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def snapshot(self) -> EngineSnapshot:
        return self.engine.snapshot()

    def encode_job(self, job: Job) -> list[int]:
        """The token ids of a job's prompt. User text never becomes a control token, except in a raw prompt."""
        if job.kind == "prompt_ids":
            return list(job.prompt_ids)
        if job.kind == "prompt" and job.raw:
            ids = self.tokenizer.encode(job.prompt, allow_special=True)
            bos = self.tokenizer.bos_id
            return [bos, *ids] if self.tokenizer.add_bos and bos is not None and ids[:1] != [bos] else ids
        messages: Sequence[Message] = job.messages
        if job.kind == "prompt":
            messages = ({"role": "user", "content": job.prompt},)
        return encode_chat(self.tokenizer, self.template, messages)

    def start(self, job: Job, *, request_id: str | None = None) -> RequestHandle:
        """Queue a job; its tokens come from the handle. Raises as `submit` does."""
        return self.submit(self.encode_job(job), job, self.rule_of(job.form), request_id=request_id)

    def submit(
        self, prompt_ids: Sequence[int], job: Job, rule: AnswerRule, *, request_id: str | None = None
    ) -> RequestHandle:
        """Queue a job whose prompt is encoded already. Raises as `Engine.submit` does."""
        return self.engine.submit(
            prompt_ids, job.sampling, constraint=rule.constraint, labels=rule.labels, request_id=request_id
        )

    async def generate(
        self, prompts: Sequence[str | Sequence[Message]], *, on_event: OnEvent | None = None, **fields: Any
    ) -> list[Completion]:
        """Answer prompts (texts, or lists of `{"role", "content"}` messages) all at once, in order.

        `fields`, for all of them, are those of `SamplingParams`, and `response_format` or `choices`. `on_event` gets
        (index, event) as tokens come. Where one prompt fails, the others are aborted and its error is raised.
        """
        if isinstance(prompts, str):
            raise InvalidArgument("prompts is a list; put a single prompt into one", param="prompts")
        form = parse_answer_form({name: value for name, value in fields.items() if value is not None})
        params = SamplingParams(**{name: value for name, value in fields.items() if name not in ANSWER_FIELDS})
        jobs = [
            replace(parse_job(index, _job_fields(prompt)), sampling=params, form=form)
            for index, prompt in enumerate(prompts)
        ]
        handles: list[RequestHandle] = []
        try:
            handles.extend(self.start(job) for job in jobs)
            return list(
                await asyncio.gather(*(_follow(index, handle, on_event) for index, handle in enumerate(handles)))
            )
        finally:
            for handle in handles:
                handle.abort()

    async def run_batch(
        self,
        jobs: Iterable[Job | RefusedJob | dict[str, Any]],
        *,
        on_event: OnEvent | None = None,
        on_row: OnRow | None = None,
    ) -> list[dict[str, object]]:
        """Run jobs all at once: a row for each, in order, as `jobs.result_row` and `jobs.error_row` make them.

        A job that cannot run has an error row and the others go on. `on_row` gets each row as it is finished. Where the
        call is cancelled or a callback raises, everything that still runs is aborted.
        """

        async def run(index: int, job: Job | RefusedJob | dict[str, Any]) -> dict[str, object]:
            try:
                if not isinstance(job, Job | RefusedJob):
                    job = parse_job(index, job)
                if isinstance(job, RefusedJob):
                    raise job.error
                completion = await _follow(index, self.start(job), on_event)
                row = result_row(index, completion, self.tokenizer.token_bytes)
            except PageloomError as error:
                row = error_row(index, error)
            if on_row is not None:
                on_row(row)
            return row

        tasks = [asyncio.ensure_future(run(index, job)) for index, job in enumerate(jobs)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Abort what runs and give the device back. Safe to call twice."""
        await self.engine.close()


async def _follow(index: int, handle: RequestHandle, on_event: OnEvent | None) -> Completion:
    """The result of a request, which is aborted where nobody waits for it any more."""
    try:
        if on_event is not None:
            async for event in handle:
                on_event(index, event)
        return await handle.result()
    finally:
        handle.abort()


def _job_fields(prompt: object) -> dict[str, object]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    return {"messages": list(prompt) if isinstance(prompt, Sequence) else prompt}
