"""What a request for text asks for, whatever its endpoint."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pageloom.answer_form import ANSWER_FIELDS
from pageloom.engine.events import TokenEvent
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.jobs import SAMPLING_FIELDS, Job, parse_job
from pageloom.worker.errors import ModelNotFound

Json = dict[str, Any]
TokenBytes = Callable[[int], bytes]

DEFAULTS: Mapping[str, object] = {"temperature": 1.0}
"""OpenAI's, where the project's own differ."""
EXTENSIONS = ("top_k", "min_p", "repetition_penalty", "ignore_eos", "stop_token_ids")
"""Sampling fields that OpenAI does not have."""
IGNORED = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Fields that say nothing of the answer."""


class Format(Protocol):
    """How an endpoint says an answer. An entry is a token's event; `index` is that of the choice."""

    prefix: str
    """Of the ids."""
    object: str
    chunk_object: str

    def choice(self, index: int, entries: Sequence[TokenEvent], finish_reason: str) -> Json:
        """A whole answer."""
        ...

    def opening(self, index: int) -> Json | None:
        """What comes before the first token of a stream, if anything."""
        ...

    def delta(self, index: int, entry: TokenEvent) -> Json | None:
        """What one token adds to a stream, if anything."""
        ...

    def closing(self, index: int, finish_reason: str) -> Json:
        """What ends an answer's stream."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """A job for each choice, in the order of their `index`; `choices_per_prompt` in a row have the same prompt."""

    jobs: tuple[Job, ...]
    choices_per_prompt: int
    stream: bool
    include_usage: bool
    format: Format


class Fields:
    """The fields of a body; each is taken once, and `finish` refuses those that nobody took. A null is no value."""

    def __init__(self, body: Mapping[str, Any], ignored: Container[str] = ()) -> None:
        self._left = {name: value for name, value in body.items() if value is not None and name not in ignored}

    def take(self, name: str, kind: type, default: Any) -> Any:
        """The value of a field. Raises `InvalidArgument` for another type."""
        value = self._left.pop(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidArgument(f"{name} is {value!r:.60}; it has to be {_KINDS[kind]}", param=name)
        return value

    def sampling(self) -> Json:
        """The sampling fields, for `parse_job`."""
        return {name: self._left.pop(name) for name in SAMPLING_FIELDS if name in self._left}

    def form(self) -> Json:
        """The fields that say what the answer has to be, for `parse_job`."""
        return {name: self._left.pop(name) for name in ANSWER_FIELDS if name in self._left}

    def rename(self, name: str, new: str) -> None:
        """A field under another name. Raises `InvalidArgument` where both are given and differ."""
        if name in self._left:
            value = self._left.pop(name)
            if self._left.setdefault(new, value) != value:
                raise InvalidArgument(f"{name} and {new} are both given and differ; give one", param=name)

    def refuse(self, name: str, allowed: Sequence[object], reason: str) -> None:
        """Raise `NotSupported` for a field unless its value changes nothing."""
        if name in self._left and self._left.pop(name) not in allowed:
            raise NotSupported(f"{name} is not supported: {reason}", param=name)

    def finish(self) -> None:
        """Raise `InvalidArgument` for a field that is not known."""
        for name in self._left:
            raise InvalidArgument(f"unknown field {name!r:.60}", param=name)


_KINDS = {bool: "true or false", int: "a whole number", dict: "an object", object: "a value", str: "a string"}


def check_model(body: Mapping[str, Any], served: str) -> None:
    """Raise `ModelNotFound` unless the body names the model that is served."""
    model = body.get("model")
    if not isinstance(model, str):
        raise InvalidArgument(f"model is {model!r:.60}; this worker serves {served!r}", param="model")
    if model != served:
        raise ModelNotFound(f"there is no model {model!r}; this worker serves {served!r}", param="model")


def take_stream(fields: Fields) -> tuple[bool, bool]:
    """(whether to stream, whether to end the stream with the usage)."""
    stream = fields.take("stream", bool, False)
    options = Fields(fields.take("stream_options", dict, {}))
    include_usage = options.take("include_usage", bool, False)
    options.take("include_obfuscation", bool, False)
    options.finish()
    if include_usage and not stream:
        raise InvalidArgument("stream_options goes with stream: true", param="stream_options")
    return stream, include_usage


def jobs_of(prompts: Sequence[Json], sampling: Json, n: int, max_choices: int) -> tuple[Job, ...]:
    """`n` jobs for each prompt; a seed counts up, so that the answers to one prompt differ.

    Raises `InvalidArgument` for more than `max_choices` in all, and as `parse_job` does.
    """
    if not 1 <= n <= max_choices or n * len(prompts) > max_choices:
        raise InvalidArgument(
            f"{len(prompts)} prompts with n {n}; n is at least 1, and at most {max_choices} answers are made at once",
            param="n",
        )
    jobs: list[Job] = []
    for prompt in prompts:
        job = parse_job(len(jobs), {**prompt, **sampling}, DEFAULTS)
        seed = job.sampling.seed
        for turn in range(n):
            varied = replace(job.sampling, seed=None if seed is None else seed + turn)
            jobs.append(replace(job, index=len(jobs), sampling=varied))
    return tuple(jobs)
