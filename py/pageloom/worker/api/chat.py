"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pageloom.engine.events import TokenEvent, TokenLogprob
from pageloom.errors import InvalidArgument
from pageloom.jobs import token_logprob
from pageloom.worker.api.call import IGNORED, Call, Fields, Json, TokenBytes, jobs_of, take_stream

NO_TOOLS = "the model is given no tools; describe them in a message"


def parse_chat(body: Mapping[str, Any], token_bytes: TokenBytes, max_choices: int) -> Call:
    """What a body asks for. Raises `InvalidArgument` and `NotSupported`, each with the field as `param`."""
    fields = Fields(body, IGNORED)
    fields.take("model", str, "")
    stream, include_usage = take_stream(fields)
    n = fields.take("n", int, 1)
    wants_logprobs = fields.take("logprobs", bool, False)
    alternatives = fields.take("top_logprobs", int, 0)
    if alternatives and not wants_logprobs:
        raise InvalidArgument("top_logprobs goes with logprobs: true", param="top_logprobs")
    fields.rename("max_completion_tokens", "max_tokens")
    for name in ("tools", "functions"):
        fields.refuse(name, [[]], NO_TOOLS)
    for name in ("tool_choice", "function_call"):
        fields.refuse(name, ["none", "auto"], NO_TOOLS)
    fields.take("parallel_tool_calls", bool, False)
    fields.refuse("modalities", [["text"]], "answers are text")
    messages = fields.take("messages", object, [])
    sampling = fields.sampling() | fields.form()
    if wants_logprobs:
        sampling["logprobs"] = alternatives
    fields.finish()
    if isinstance(messages, list):
        messages = [_without_nulls(message) for message in messages]
    jobs = jobs_of([{"messages": messages}], sampling, n, max_choices)
    return Call(jobs, n, stream, include_usage, ChatFormat(token_bytes))


def _without_nulls(message: object) -> object:
    """A message without the fields that are null: clients send an answer back with all that it could have had."""
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if value is not None}


class ChatFormat:
    """See `Format`. Log-probabilities have one entry a token, those included whose text is held back."""

    prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes

    def choice(self, index: int, entries: Sequence[TokenEvent], finish_reason: str) -> Json:
        text = "".join(entry.text_delta for entry in entries)
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(entries),
            "finish_reason": finish_reason,
        }

    def opening(self, index: int) -> Json | None:
        return {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def delta(self, index: int, entry: TokenEvent) -> Json | None:
        logprobs = self._logprobs([entry])
        if not entry.text_delta and logprobs is None:
            return None
        return {"index": index, "delta": {"content": entry.text_delta}, "logprobs": logprobs, "finish_reason": None}

    def closing(self, index: int, finish_reason: str) -> Json:
        return {"index": index, "delta": {}, "logprobs": None, "finish_reason": finish_reason}

    def _logprobs(self, entries: Sequence[TokenEvent]) -> Json | None:
        if not entries or entries[0].logprob is None:
            return None
        return {"content": [self._entry(entry) for entry in entries], "refusal": None}

    def _entry(self, entry: TokenEvent) -> Json:
        chosen = TokenLogprob(entry.token_id, entry.logprob or 0.0)
        others = [token_logprob(other, self._token_bytes) for other in entry.top_logprobs]
        return {**token_logprob(chosen, self._token_bytes), "top_logprobs": others}
