"""An answer as a whole, and as a stream of server-sent events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator

from pageloom.answer_form import label_fields
from pageloom.engine.events import FinishEvent, TokenEvent, Usage
from pageloom.worker.api.call import Call, Json
from pageloom.worker.event_stream import DONE, error_event, json_event
from pageloom.worker.model_thread import Generation


class Answer:
    """What is said of one call: its id, when it was made, and what it used."""

    def __init__(self, call: Call, model: str) -> None:
        self._call = call
        self._format = call.format
        self._usages: list[Usage | None] = [None] * len(call.jobs)
        self.id = call.format.prefix + uuid.uuid4().hex
        self._created = int(time.time())
        self._model = model

    async def whole(self, generation: Generation) -> Json:
        """The response body. Raises what ends the generation."""
        entries: list[list[TokenEvent]] = [[] for _ in self._call.jobs]
        reasons = [""] * len(self._call.jobs)
        labels: list[Json] = [{} for _ in self._call.jobs]
        async for index, event in generation:
            if isinstance(event, FinishEvent):
                reasons[index] = event.reason
                labels[index] = label_fields(event.labels)
                self._usages[index] = event.usage
            else:
                entries[index].append(event)
        choices = [
            self._format.choice(index, *said) | labels[index]
            for index, said in enumerate(zip(entries, reasons, strict=True))
        ]
        return {**self._frame(self._format.object), "choices": choices, "usage": self._usage()}

    async def events(self, generation: Generation) -> AsyncIterator[bytes]:
        """The stream's events, the last of them `[DONE]`, or an error object for what ends the generation early.

        Those that are there together are one piece: a client that reads slowly, or many at once, cost fewer writes.
        """
        piece = b""
        try:
            async for chunk in self._chunks(generation):
                piece += json_event(chunk)
                if not generation.has_next:
                    yield piece
                    piece = b""
            last = DONE
        except Exception as error:
            last = error_event(error)
        yield piece + last

    async def _chunks(self, generation: Generation) -> AsyncIterator[Json]:
        for index in range(len(self._call.jobs)):
            if (opening := self._format.opening(index)) is not None:
                yield self._chunk(opening)
        async for index, event in generation:
            if isinstance(event, FinishEvent):
                self._usages[index] = event.usage
                yield self._chunk(self._format.closing(index, event.reason) | label_fields(event.labels))
            elif (delta := self._format.delta(index, event)) is not None:
                yield self._chunk(delta)
        if self._call.include_usage:
            yield {**self._frame(self._format.chunk_object), "choices": [], "usage": self._usage()}

    def _chunk(self, choice: Json) -> Json:
        usage = {"usage": None} if self._call.include_usage else {}
        return {**self._frame(self._format.chunk_object), "choices": [choice], **usage}

    def _frame(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model}

    def _usage(self) -> Json:
        """The tokens of the call; those of a prompt count once, whatever n is."""
        usages = [usage for usage in self._usages if usage is not None]
        firsts = usages[:: self._call.choices_per_prompt]
        prompt = sum(usage.prompt_tokens for usage in firsts)
        completion = sum(usage.completion_tokens for usage in usages)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in firsts)},
        }
