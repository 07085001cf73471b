"""A job is one prompt of a batch, as a line of a JSON Lines file or a row given to the page says it.

Everything here is pure, so that the native command, the tab and the page read a job in the same way:

    {"prompt": "What is gravity?"}                                   one user message, through the chat template
    {"prompt": "The capital of France is", "raw": true}              the text as it stands, control tokens recognised
    {"messages": [{"role": "user", "content": "Hi"}]}                a conversation, through the chat template
    {"prompt_ids": [504, 3575], "max_tokens": 8, "temperature": 0}   token ids, with sampling fields
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from pageloom.errors import InvalidArgument, PageloomError

JobKind = Literal["prompt", "messages", "prompt_ids"]
Message = dict[str, object]
"""`{"role": str, "content": str | [{"type": "text", "text": str}, ...], "name"?: str}`."""


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt and how to sample its answer. Exactly the field that `kind` names is filled."""

    index: int
    """Position among the jobs of the batch, from 0."""
    kind: JobKind
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    raw: bool = False
    """For `kind == "prompt"`: no chat template, and control tokens are recognised in the text."""
    sampling: Mapping[str, object] | None = None
    """Keyword arguments of `SamplingParams`; what is absent takes that class's default."""


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A line that is not a job, and why."""

    index: int
    error: PageloomError


def parse_job(index: int, fields: object, defaults: Mapping[str, object] | None = None) -> Job:
    """The job that one JSON object describes. `defaults` are sampling fields for a job that does not set them.

    Raises `InvalidArgument`, its `param` the field at fault.
    """
    if not isinstance(fields, dict):
        raise InvalidArgument(f"a job is a JSON object, not {_json_type(fields)}")
    kinds: list[JobKind] = [kind for kind in _PROMPT_CHECKS if fields.get(kind) is not None]
    if len(kinds) != 1:
        given = " and ".join(kinds) or "none of them"
        _refuse("prompt", f"a job has exactly one of {', '.join(_PROMPT_CHECKS)}; this one has {given}")
    unknown = sorted(map(str, set(fields) - set(_PROMPT_CHECKS) - set(_SAMPLING_CHECKS) - {"raw"}))
    if unknown:
        allowed = ", ".join([*_PROMPT_CHECKS, "raw", *_SAMPLING_CHECKS])
        _refuse(unknown[0], f"unknown field {unknown[0]!r}; a job may have {allowed}")
    kind = kinds[0]
    raw = fields.get("raw", False)
    if not isinstance(raw, bool):
        _refuse("raw", f"raw is true or false, not {_json_type(raw)}")
    if raw and kind != "prompt":
        _refuse("raw", f"raw goes with prompt; {kind} is already exact about its tokens")
    value = _PROMPT_CHECKS[kind](fields[kind])
    if raw and not value:
        _refuse("prompt", "a raw prompt needs at least one character; the model has nothing to go on")
    merged = {**(defaults or {}), **{name: fields[name] for name in _SAMPLING_CHECKS if fields.get(name) is not None}}
    sampling = {name: _SAMPLING_CHECKS[name](name, setting) for name, setting in merged.items()}
    return Job(index=index, kind=kind, raw=raw, sampling=sampling, **{kind: value})  # type: ignore[arg-type]


def parse_job_lines(
    lines: Iterable[str], defaults: Mapping[str, object] | None = None, *, strict: bool = False
) -> list[Job | RefusedJob]:
    """The jobs of a JSON Lines file, in order; empty lines are passed over and have no index.

    A line that is no job becomes a `RefusedJob`. With `strict` the first one raises `InvalidArgument` instead, its
    message with the line's number, from 1.
    """
    jobs: list[Job | RefusedJob] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            jobs.append(parse_job(len(jobs), _parse_json(line), defaults))
        except PageloomError as error:
            located = type(error)(f"line {number}: {error.message}", param=error.param)
            if strict:
                raise located from error
            jobs.append(RefusedJob(len(jobs), located))
    return jobs


def error_row(index: int, error: PageloomError) -> dict[str, object]:
    """The output line of a job that failed: its index and OpenAI's error object."""
    return {"index": index, **error.to_openai()}


def _parse_json(line: str) -> object:
    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(line, parse_constant=refuse_constant)
    except RecursionError as error:
        raise InvalidArgument("the line is nested too deep") from error
    except ValueError as error:
        raise InvalidArgument(f"the line is not JSON: {error}") from error


def _refuse(param: str, message: str) -> NoReturn:
    raise InvalidArgument(message, param=param)


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a string", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def _text(param: str, value: object) -> str:
    if not isinstance(value, str):
        _refuse(param, f"{param} is a string, not {_json_type(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        _refuse(param, f"{param} holds half of a surrogate pair at character {error.start}; it is not valid Unicode")
    return value


def _integer(param: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(param, f"{param} is a whole number, not {value if isinstance(value, float) else _json_type(value)}")
    return value


def _number(param: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(param, f"{param} is a number, not {_json_type(value)}")
    try:
        return float(value)
    except OverflowError:
        _refuse(param, f"{param} is far too large")


def _check_prompt(value: object) -> str:
    return _text("prompt", value)


def _check_messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        _refuse("messages", "messages is an array of at least one {role, content} object")
    for position, message in enumerate(value):
        _check_message(f"messages[{position}]", message)
    return tuple(value)


def _check_message(param: str, message: object) -> None:
    if not isinstance(message, dict):
        _refuse(param, f"{param} is a {{role, content}} object, not {_json_type(message)}")
    unknown = sorted(map(str, set(message) - {"role", "content", "name"}))
    if unknown:
        _refuse(
            f"{param}.{unknown[0]}", f"{param} has the unknown field {unknown[0]!r}; it may have role, content, name"
        )
    if not _text(f"{param}.role", message.get("role")):
        _refuse(f"{param}.role", f"{param}.role is empty; use system, user or assistant")
    if "name" in message:
        _text(f"{param}.name", message["name"])
    content = message.get("content")
    if not isinstance(content, list):
        _text(f"{param}.content", content)
        return
    for position, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            _refuse(f"{param}.content[{position}]", 'a part of a message is {"type": "text", "text": …}')
        _text(f"{param}.content[{position}].text", part.get("text"))


def _check_prompt_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        _refuse("prompt_ids", "prompt_ids is an array of at least one token id")
    for position, token in enumerate(value):
        if _integer(f"prompt_ids[{position}]", token) < 0:
            _refuse(f"prompt_ids[{position}]", f"a token id is at least 0, not {token}")
    return tuple(value)


def _strings(param: str, value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(_text(param, item) for item in items)


def _integers(param: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        _refuse(param, f"{param} is an array of token ids, not {_json_type(value)}")
    return tuple(_integer(param, item) for item in value)


def _biases(param: str, value: object) -> dict[int, float]:
    if not isinstance(value, dict):
        _refuse(param, f"{param} is an object of token id to bias, not {_json_type(value)}")
    for token in value:
        if not (isinstance(token, str) and token.isascii() and token.isdigit() and len(token) <= 10):
            _refuse(param, f"{param} has the key {token!r}; a key is a token id in decimal digits")
    return {int(token): _number(f"{param}[{token}]", bias) for token, bias in value.items()}


def _boolean(param: str, value: object) -> bool:
    if not isinstance(value, bool):
        _refuse(param, f"{param} is true or false, not {_json_type(value)}")
    return value


_PROMPT_CHECKS: dict[JobKind, Callable[[object], object]] = {
    "prompt": _check_prompt,
    "messages": _check_messages,
    "prompt_ids": _check_prompt_ids,
}
# Only the JSON types are checked here: the ranges are SamplingParams' own.
_SAMPLING_CHECKS: dict[str, Callable[[str, object], object]] = {
    "max_tokens": _integer,
    "temperature": _number,
    "top_p": _number,
    "top_k": _integer,
    "min_p": _number,
    "seed": _integer,
    "stop": _strings,
    "stop_token_ids": _integers,
    "ignore_eos": _boolean,
    "repetition_penalty": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "logit_bias": _biases,
    "logprobs": _integer,
}
