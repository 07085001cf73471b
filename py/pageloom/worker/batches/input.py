"""A file of requests, as OpenAI's batches have them: one JSON object a line.

{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": …, "messages": …}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pageloom.errors import InvalidArgument, PageloomError
from pageloom.worker.bodies import parse_json_object

MOST_ERRORS = 20
"""Lines that are reported; a file with one wrong line has often all of them wrong."""
MOST_CUSTOM_ID = 512


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One request of a batch; `body` is its JSON."""

    position: int
    custom_id: str
    body: str


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line is no request. `line` counts from 1."""

    line: int
    code: str
    message: str
    param: str | None

    def to_fields(self) -> dict[str, object]:
        """OpenAI's error object of a batch."""
        return {"line": self.line, "code": self.code, "message": self.message, "param": self.param}


def parse_batch(content: bytes, endpoint: str, model: str, max_rows: int) -> list[BatchRow] | list[LineError]:
    """The rows of a file whose lines all fit, or the errors of those that do not. Empty lines are passed over.

    What a body asks for is not looked at: a row that cannot be served has an error of its own.
    """
    rows: list[BatchRow] = []
    errors: list[LineError] = []
    seen: set[str] = set()
    for number, line in _lines(content):
        try:
            row = _parse_line(len(rows), line, endpoint, model)
            if row.custom_id in seen:
                raise InvalidArgument(f"the custom_id {row.custom_id!r} is there twice", param="custom_id")
            if len(rows) == max_rows:
                raise InvalidArgument(f"the file has more than {max_rows} rows; split it")
        except PageloomError as error:
            errors.append(LineError(number, error.code, error.message, error.param))
            if len(errors) == MOST_ERRORS:
                break
        else:
            seen.add(row.custom_id)
            rows.append(row)
    if not rows and not errors:
        errors.append(LineError(1, InvalidArgument.code, "the file holds no request", None))
    return errors or rows


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _parse_line(position: int, line: bytes, endpoint: str, model: str) -> BatchRow:
    fields = parse_json_object(line)
    custom_id, body = fields.get("custom_id"), fields.get("body")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MOST_CUSTOM_ID:
        raise InvalidArgument(f"custom_id is a text of 1 to {MOST_CUSTOM_ID} characters", param="custom_id")
    for name, wanted in (("method", "POST"), ("url", endpoint)):
        if fields.get(name) != wanted:
            raise InvalidArgument(
                f"{name} is {fields.get(name)!r:.60}; in this batch it has to be {wanted}", param=name
            )
    if not isinstance(body, dict):
        raise InvalidArgument("body is the JSON object of the request", param="body")
    _check_body(body, model)
    return BatchRow(position, custom_id, json.dumps(body))


def _check_body(body: dict[str, Any], model: str) -> None:
    if body.get("model") != model:
        raise InvalidArgument(f"model is {body.get('model')!r:.60}; this worker serves {model!r}", param="model")
    if body.get("stream"):
        raise InvalidArgument("a row of a batch is answered whole; leave stream out", param="stream")
