"""A job is one prompt of a batch, as a line of a JSON Lines file or a row given to the page says it.

Everything here is pure, so that the native command, the tab and the page read a job in the same way:

    {"prompt": "What is gravity?"}                                   one user message, through the chat template
    {"prompt": "The capital of France is", "raw": true}              the text as it stands, control tokens recognised
    {"messages": [{"role": "user", "content": "Hi"}]}                a conversation, through the chat template
    {"prompt_ids": [504, 3575], "max_tokens": 8, "temperature": 0}   token ids, with sampling fields

The answer can be kept to a form; see `answer_form`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, NoReturn

from pageloom.answer_form import ANSWER_FIELDS, AnswerForm, label_fields, parse_answer_form
from pageloom.engine.events import Completion, TokenLogprob
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import InvalidArgument, PageloomError, shown

JobKind = Literal["prompt", "messages", "prompt_ids"]
Message = dict[str, object]
"""`{"role": str, "content": str | [{"type": "text", "text": str}, ...], "name"?: str}`."""
SAMPLING_FIELDS = tuple(setting.name for setting in fields(SamplingParams))


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt and how to sample its answer. Exactly the field that `kind` names is filled.

    Raises `InvalidArgument` for an answer that has to end with its JSON and may not end.
    """

    index: int
    """Position among the jobs of the batch, from 0."""
    kind: JobKind
    prompt: str = ""
    messages: tuple[Message, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    raw: bool = False
    """For `kind == "prompt"`: no chat template, and control tokens are recognised in the text."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    form: AnswerForm = field(default_factory=AnswerForm)

    def __post_init__(self) -> None:
        if self.form.response_format is not None and self.sampling.ignore_eos:
            _refuse("ignore_eos", "ignore_eos does not go with response_format: the answer ends with its JSON")

    def to_fields(self) -> dict[str, object]:
        """The JSON object that `parse_job` reads as this job."""
        described: dict[str, object] = {self.kind: getattr(self, self.kind), "raw": self.raw, **self.form.to_fields()}
        for setting in fields(SamplingParams):
            default = setting.default if setting.default_factory is MISSING else setting.default_factory()
            value = getattr(self.sampling, setting.name)
            if value != default:
                described[setting.name] = value
        return dict(json.loads(json.dumps(described)))


@dataclass(frozen=True, slots=True)
class RefusedJob:
    """A line that is not a job, and why."""

    index: int
    error: PageloomError


def parse_job(index: int, job_fields: object, defaults: Mapping[str, object] | None = None) -> Job:
    """The job that one JSON object describes. `defaults` are sampling fields for a job that does not set them; a
    classification takes none.

    Raises `InvalidArgument`, its `param` the field at fault, and as `parse_answer_form` does.
    """
    if not isinstance(job_fields, dict):
        raise InvalidArgument(f"a job is a JSON object, not {_json_type(job_fields)}")
    given = {name: value for name, value in job_fields.items() if value is not None}
    kinds: list[JobKind] = [kind for kind in _PROMPT_CHECKS if kind in given]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        _refuse("prompt", f"a job has exactly one of {', '.join(_PROMPT_CHECKS)}; this one has {found}")
    known = [*_PROMPT_CHECKS, "raw", *ANSWER_FIELDS, *SAMPLING_FIELDS]
    unknown = _unknown_fields(job_fields, set(known))
    if unknown:
        allowed = ", ".join(known)
        _refuse(unknown[0], f"unknown field {unknown[0]!r}; a job may have {allowed}")
    kind = kinds[0]
    raw = given.get("raw", False)
    if not isinstance(raw, bool):
        _refuse("raw", f"raw is true or false, not {_json_type(raw)}")
    if raw and kind != "prompt":
        _refuse("raw", f"raw goes with prompt; {kind} is already exact about its tokens")
    value = _PROMPT_CHECKS[kind](given[kind])
    if raw and not value:
        _refuse("prompt", "a raw prompt needs at least one character; the model has nothing to go on")
    form = parse_answer_form({name: value for name, value in given.items() if name not in (kind, "raw")})
    settings = {} if defaults is None or form.choices else dict(defaults)
    settings |= {name: given[name] for name in SAMPLING_FIELDS if name in given}
    sampling = SamplingParams(**{name: _python_value(name, setting) for name, setting in settings.items()})
    return Job(index=index, kind=kind, raw=raw, sampling=sampling, form=form, **{kind: value})  # type: ignore[arg-type]


def parse_job_lines(
    lines: Iterable[str], defaults: Mapping[str, object] | None = None, *, strict: bool = False
) -> list[Job | RefusedJob]:
    """The jobs of a JSON Lines file, in order; empty lines are passed over and have no index.

    A byte order mark, as some editors write it, is passed over too. A line that is no job becomes a `RefusedJob`. With
    `strict` the first one raises `InvalidArgument` instead, its message with the line's number, from 1.
    """
    jobs: list[Job | RefusedJob] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            jobs.append(parse_job(len(jobs), _parse_json(line.removeprefix("\ufeff")), defaults))
        except PageloomError as error:
            located = type(error)(f"line {number}: {error.message}", param=error.param)
            if strict:
                raise located from error
            jobs.append(RefusedJob(len(jobs), located))
    return jobs


def result_row(index: int, completion: Completion, token_bytes: Callable[[int], bytes]) -> dict[str, object]:
    """The output line of a job that was served; `logprobs` is there where they were asked for, and what `label_fields`
    says of a classification."""
    usage = completion.usage
    row: dict[str, object] = {
        "index": index,
        "prompt_ids": list(completion.prompt_ids),
        "output_ids": list(completion.output_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        },
    }
    if completion.logprobs:
        row["logprobs"] = [
            {
                **token_logprob(chosen, token_bytes),
                "top_logprobs": [token_logprob(other, token_bytes) for other in others],
            }
            for chosen, others in zip(completion.logprobs, completion.top_logprobs, strict=True)
        ]
    return row | label_fields(completion.labels)


def token_logprob(entry: TokenLogprob, token_bytes: Callable[[int], bytes]) -> dict[str, object]:
    """OpenAI's object of a token; a part of a character shows as U+FFFD in `token` and exactly in `bytes`."""
    raw = token_bytes(entry.token_id)
    return {"token": raw.decode(errors="replace"), "bytes": list(raw), "logprob": entry.logprob}


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


def _unknown_fields(found: Mapping[object, object], known: Set[str]) -> list[str]:
    return sorted(name if isinstance(name, str) else shown(name) for name in found if name not in known)


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
    unknown = _unknown_fields(message, {"role", "content", "name"})
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
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**31:
            _refuse(f"prompt_ids[{position}]", f"a token id is a whole number from 0, not {shown(token)}")
    return tuple(value)


def _python_value(name: str, value: object) -> Any:
    """What `SamplingParams` takes for a JSON value; the values themselves are its own to check."""
    if name == "logit_bias":
        if not isinstance(value, dict):
            _refuse(name, f"{name} is an object of token id to bias, not {_json_type(value)}")
        return {_token_id(name, token): bias for token, bias in value.items()}
    if name == "stop":
        return tuple(_text(name, text) for text in (value if isinstance(value, list | tuple) else [value]))
    if name == "stop_token_ids" and not isinstance(value, list | tuple):
        _refuse(name, f"{name} is an array of token ids, not {_json_type(value)}")
    return value


def _token_id(param: str, token: object) -> int:
    if not (isinstance(token, str) and token.isascii() and token.isdigit() and len(token) <= 10):
        _refuse(param, f"{param} has the key {shown(token)}; a key is a token id in decimal digits")
    return int(token)


_PROMPT_CHECKS: dict[JobKind, Callable[[object], object]] = {
    "prompt": _check_prompt,
    "messages": _check_messages,
    "prompt_ids": _check_prompt_ids,
}
