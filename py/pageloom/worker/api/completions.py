"""`/v1/completions`: a text goes on, without a chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pageloom.engine.events import TokenEvent
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.jobs import Job
from pageloom.model.text_stream import TextStream
from pageloom.worker.api.call import IGNORED, Call, Fields, Json, TokenBytes, jobs_of, take_stream

USUAL_MAX_TOKENS = 16
"""OpenAI's for this endpoint."""


def parse_completion(body: Mapping[str, Any], token_bytes: TokenBytes, max_choices: int) -> Call:
    """What a body asks for. Raises `InvalidArgument` and `NotSupported`, each with the field as `param`."""
    fields = Fields(body, IGNORED)
    fields.take("model", str, "")
    stream, include_usage = take_stream(fields)
    n = fields.take("n", int, 1)
    echo = fields.take("echo", bool, False)
    fields.refuse("best_of", [n], "every answer that is made is returned; use n")
    fields.refuse("suffix", [""], "the model goes on from the prompt and knows no text behind it")
    prompts = _prompts(fields.take("prompt", object, None))
    sampling = {"max_tokens": USUAL_MAX_TOKENS, **fields.sampling(), **fields.form()}
    fields.finish()
    if echo and "logprobs" in sampling:
        raise NotSupported("echo is not supported with logprobs: a prompt's own are not computed", param="echo")
    jobs = jobs_of(prompts, sampling, n, max_choices)
    echoes = tuple(_text(job, token_bytes) if echo else "" for job in jobs)
    return Call(jobs, n, stream, include_usage, CompletionFormat(token_bytes, echoes))


def _prompts(prompt: object) -> list[Json]:
    """The fields of a job for each prompt of OpenAI's four shapes: a text, token ids, or a list of either."""
    if isinstance(prompt, list) and prompt and not all(isinstance(item, int) for item in prompt):
        return [_prompt(item) for item in prompt]
    return [_prompt(prompt)]


def _prompt(prompt: object) -> Json:
    if isinstance(prompt, str):
        return {"prompt": prompt, "raw": True}
    if isinstance(prompt, list):
        return {"prompt_ids": prompt}
    raise InvalidArgument("prompt is a text, an array of token ids, or an array of either", param="prompt")


def _text(job: Job, token_bytes: TokenBytes) -> str:
    return job.prompt or b"".join(map(token_bytes, job.prompt_ids)).decode(errors="replace")


class CompletionFormat:
    """See `Format`. Log-probabilities have one entry a token, those included whose text is held back."""

    prefix = "cmpl-"
    object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, token_bytes: TokenBytes, echoes: Sequence[str]) -> None:
        self._token_bytes = token_bytes
        self._echoes = echoes
        self._streamed: dict[int, TextOffsets] = {}

    def choice(self, index: int, entries: Sequence[TokenEvent], finish_reason: str) -> Json:
        text = self._echoes[index] + "".join(entry.text_delta for entry in entries)
        logprobs = self._logprobs(entries, TextOffsets())
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def opening(self, index: int) -> Json | None:
        return self._chunk(index, self._echoes[index]) if self._echoes[index] else None

    def delta(self, index: int, entry: TokenEvent) -> Json | None:
        logprobs = self._logprobs([entry], self._streamed.setdefault(index, TextOffsets()))
        if not entry.text_delta and logprobs is None:
            return None
        return {**self._chunk(index, entry.text_delta), "logprobs": logprobs}

    def closing(self, index: int, finish_reason: str) -> Json:
        return {**self._chunk(index, ""), "finish_reason": finish_reason}

    def _chunk(self, index: int, text: str) -> Json:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None}

    def _logprobs(self, entries: Sequence[TokenEvent], offsets: TextOffsets) -> Json | None:
        if not entries or entries[0].logprob is None:
            return None
        return {
            "tokens": [self._name(entry.token_id) for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [
                {self._name(other.token_id): other.logprob for other in entry.top_logprobs} for entry in entries
            ],
            "text_offset": [offsets.next(self._token_bytes(entry.token_id)) for entry in entries],
        }

    def _name(self, token_id: int) -> str:
        """A token's text, or `bytes:\\xe2\\x9c` where it is not whole characters, as OpenAI writes it."""
        data = self._token_bytes(token_id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class TextOffsets:
    """Where in the text each token begins, in characters; bytes of one character have the same place."""

    def __init__(self) -> None:
        self._stream = TextStream()
        self._length = 0

    def next(self, data: bytes) -> int:
        """Where the token with these bytes begins."""
        start = self._length
        self._length += len(self._stream.push(data))
        return start
