"""OpenAI's `response_format`."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from pageloom.errors import InvalidArgument, PageloomError, shown
from pageloom.grammar.automaton import Automaton
from pageloom.grammar.json_grammar import ANY_OBJECT
from pageloom.grammar.json_schema import compile_schema

_SCHEMA = "response_format.json_schema.schema"
_KINDS = "text, json_object and json_schema"


def grammar_of(response_format: object) -> Automaton | None:
    """The grammar of the answers that a `response_format` asks for; None where any text will do.

    Equal formats have one automaton, until it is full. Raises `InvalidArgument` and `NotSupported` with the field at
    fault as `param`; of a schema that is `response_format.json_schema.schema`, "#" and a JSON pointer.
    """
    if not isinstance(response_format, dict) or not isinstance(response_format.get("type"), str):
        raise InvalidArgument(
            f"response_format is {shown(response_format)}; it is an object with a type, one of {_KINDS}",
            param="response_format",
        )
    kind = response_format["type"]
    allowed = {"type", "json_schema"} if kind == "json_schema" else {"type"}
    _check_fields("response_format", response_format, allowed)
    if kind == "text":
        return None
    if kind == "json_object":
        if _any_object().is_full:
            _any_object.cache_clear()
        return _any_object()
    if kind != "json_schema":
        raise InvalidArgument(
            f"response_format.type is {shown(kind)}; it is one of {_KINDS}", param="response_format.type"
        )
    schema = _schema_text(response_format.get("json_schema"))
    if _compiled(schema).is_full:
        _compiled.cache_clear()
    return _compiled(schema)


def _schema_text(described: object) -> str:
    if not isinstance(described, dict) or "schema" not in described:
        raise InvalidArgument(
            "response_format.json_schema is an object with a name and a schema", param="response_format.json_schema"
        )
    _check_fields("response_format.json_schema", described, {"name", "description", "schema", "strict"})
    for name, kind, words in (
        ("name", str, "a text"),
        ("description", str, "a text"),
        ("strict", bool, "true or false"),
    ):
        value = described.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidArgument(
                f"{name} is {shown(value)}; it has to be {words}", param=f"response_format.json_schema.{name}"
            )
    try:
        return json.dumps(described["schema"])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the schema is no JSON: {error}", param=f"{_SCHEMA}#") from error


def _check_fields(param: str, value: dict[Any, Any], allowed: set[str]) -> None:
    for name in value:
        if name not in allowed:
            raise InvalidArgument(f"{param} has the unknown field {shown(name)}", param=f"{param}.{name}")


@lru_cache(maxsize=32)
def _compiled(schema: str) -> Automaton:
    try:
        return compile_schema(json.loads(schema))
    except PageloomError as error:
        raise type(error)(error.message, param=f"{_SCHEMA}{error.param}") from error


@lru_cache(maxsize=1)
def _any_object() -> Automaton:
    return Automaton(ANY_OBJECT)
