"""One loaded model behind messages: jobs in and replies out as JSON text, over whatever carries them.

The shapes are those of `web/src/protocol.js`: the tab's worker speaks so, and `pageloom serve` to the page.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pageloom.answer_rules import AnswerRule
from pageloom.engine.engine import RequestHandle
from pageloom.engine.events import TokenEvent, TokenLogprob
from pageloom.engine.recovery import RecoveryEvent
from pageloom.errors import DeviceLost, PageloomError
from pageloom.jobs import Job, parse_job, result_row, token_logprob
from pageloom.language_model import LanguageModel

Post = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job whose prompt is encoded, with what keeps its answer to its form."""

    job: Job
    prompt_ids: list[int]
    rule: AnswerRule


class Session:
    """One loaded model, spoken to by one client."""

    def __init__(self, model: LanguageModel, post: Post, *, prefix: str = "") -> None:
        """`post` gets arrays of replies. The engine knows a job by `prefix` and its id."""
        self._model = model
        self._post_text = post
        self._prefix = prefix
        self._outbox: list[dict[str, object]] = []
        self._answering: set[asyncio.Task[None]] = set()
        self._watching: int | None = None
        self._snapshot_milliseconds = 0.0

    def describe(self) -> str:
        """What the page shows of the model and the adapter."""
        explained, adapter = self._model.explain(), self._adapter()
        return json.dumps(
            {
                "context_length": self._model.context_length,
                "warnings": [*self._model.warnings, *self._of_adapter(adapter)],
                "memory": {part: explained.get(part, {}).get("bytes") for part in ("weights", "kv_cache")},
                "adapter": adapter,
            }
        )

    def generate(self, calls: str) -> None:
        """Queue jobs, `[{"id", "fields"}]`, before the engine takes its next step. Each is answered under its id."""
        for call in json.loads(calls):
            self.begin(call["id"], self.prepare(call["fields"]))

    def prepare(self, fields: object) -> PreparedJob | Exception:
        """What `begin` takes of a job. Any thread may call it."""
        try:
            job = parse_job(0, fields)
            return PreparedJob(job, self._model.encode_job(job), self._model.rule_of(job.form))
        except Exception as error:  # whatever it is, it ends this job alone
            return error

    def begin(self, call_id: int, prepared: PreparedJob | Exception) -> asyncio.Task[None]:
        """Queue one job, which is answered under `call_id`; the task ends with its answer."""
        task = asyncio.ensure_future(self._answer(call_id, self._started(call_id, prepared)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return task

    def abort(self, call_id: int) -> None:
        """Stop a job; nothing happens where it has ended."""
        self._model.engine.abort(f"{self._prefix}{call_id}")

    def watch(self, call_id: int) -> None:
        """Tell under this id of each device that is lost and replaced, and as its result that one was not."""
        self._watching = call_id

    def tell(self, event: RecoveryEvent) -> None:
        """Pass on what the engine says of its device."""
        if event.error is not None:
            self._post({"id": self._watching, "result": error_object(event.error)})
            return
        told = {"state": event.state, "requests": event.requests, "seconds": event.seconds, "adapter": self._adapter()}
        self._post({"id": self._watching, "event": told})

    def device_lost(self, reason: str) -> None:
        """Have a lost device replaced at once, though nothing runs."""
        self._model.engine.lose(DeviceLost(f"the WebGPU device is gone: {reason}"))

    def stats(self) -> str:
        stats = self._model.stats()
        return json.dumps({**asdict(stats), "tokens_per_second": stats.tokens_per_second})

    def snapshot(self) -> str:
        """The engine between two steps, and how long the look before this one took.

        Of the blocks only those that hold something: most of a large pool is free.
        """
        asked = time.perf_counter()
        snapshot = self._model.snapshot()
        holding = [
            {"id": block_id, **_fields(block)}
            for block_id, block in enumerate(snapshot.blocks)
            if block.references or block.serial is not None
        ]
        fields = {**_fields(snapshot), "num_blocks": len(snapshot.blocks), "blocks": holding}
        del fields["reuse_order"]
        fields["milliseconds"] = self._snapshot_milliseconds
        text = json.dumps(fields, default=_fields)
        self._snapshot_milliseconds = 1000 * (time.perf_counter() - asked)
        return text

    def count_tokens(self, fields: str) -> str:
        """How many tokens the prompt of a job has: `{"count"}`, or `{"error"}` for what is no job."""
        try:
            return json.dumps({"count": len(self._model.encode_job(parse_job(0, json.loads(fields))))})
        except PageloomError as error:
            return json.dumps({"error": error_object(error)})

    def _adapter(self) -> dict[str, object]:
        explained = self._model.explain()
        told = explained.get("adapter", {})
        return {
            "vendor": told.get("vendor", ""),
            "architecture": told.get("architecture", ""),
            "description": told.get("description", self._model.device_name),
            "adapter_class": told.get("class", "cpu" if "cpu" in explained else "gpu"),
            "f16": told.get("f16", "native") == "native",
        }

    @staticmethod
    def _of_adapter(adapter: dict[str, object]) -> list[str]:
        """What a user should know of the adapter."""
        if adapter["f16"]:
            return []
        return ["this adapter lacks shader-f16: halves are packed in words, which gives the same answers more slowly"]

    def _started(self, call_id: int, prepared: PreparedJob | Exception) -> RequestHandle | Exception:
        if isinstance(prepared, Exception):
            return prepared
        try:
            request_id = f"{self._prefix}{call_id}"
            return self._model.submit(prepared.prompt_ids, prepared.job, prepared.rule, request_id=request_id)
        except Exception as error:
            return error

    async def _answer(self, call_id: int, started: RequestHandle | Exception) -> None:
        try:
            if isinstance(started, Exception):
                raise started
            async for event in started:
                if isinstance(event, TokenEvent):
                    self._post({"id": call_id, "event": self._delta(event)})
            completion = await started.result()
            row = result_row(0, completion, self._model.tokenizer.token_bytes)
            del row["index"]
            row["timings"] = asdict(completion.timings)
            self._post({"id": call_id, "result": row})
        except Exception as error:
            self._post({"id": call_id, "error": error_object(error)})

    def _delta(self, event: TokenEvent) -> dict[str, object]:
        delta: dict[str, object] = {"token_id": event.token_id, "text": event.text_delta}
        if event.logprob is not None:
            token_bytes = self._model.tokenizer.token_bytes
            delta["logprob"] = {
                **token_logprob(TokenLogprob(event.token_id, event.logprob), token_bytes),
                "top_logprobs": [token_logprob(other, token_bytes) for other in event.top_logprobs],
            }
        return delta

    def _post(self, reply: dict[str, object]) -> None:
        """Queue a reply: those of one turn of the loop, a token of every sequence, leave as one message."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(reply)

    def _flush(self) -> None:
        replies, self._outbox = self._outbox, []
        self._post_text(json.dumps(replies))


def _fields(view: Any) -> dict[str, object]:
    """A dataclass with slots as JSON, one level at a time: `asdict` copies whole pools of blocks, and far slower."""
    return {name: getattr(view, name) for name in view.__slots__}


def error_object(error: Exception) -> dict[str, str | None]:
    """OpenAI's error object. An error that the project did not raise on purpose is a bug, and tells where it is."""
    if not isinstance(error, PageloomError):
        where = "".join(traceback.format_exception(error)[-3:])
        error = PageloomError(f"the engine failed: {where}")
    return error.to_openai()["error"]
