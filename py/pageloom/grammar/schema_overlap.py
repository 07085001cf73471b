"""Whether two JSON Schemas may allow the same value: what `oneOf` has to rule out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

MOST_LEVELS = 8
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

Resolve = Callable[[object], object]


def type_of(value: object) -> str:
    """The name of a JSON value's type; a number without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def may_overlap(first: object, second: object, resolve: Resolve, level: int = 0) -> bool:
    """False only where no value fits both; `resolve` gives what a `$ref` stands for."""
    first, second = _resolved(first, resolve), _resolved(second, resolve)
    if first is False or second is False:
        return False
    if not isinstance(first, dict) or not isinstance(second, dict) or level > MOST_LEVELS:
        return True
    for schema, other in ((first, second), (second, first)):
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                return any(may_overlap(option, other, resolve, level + 1) for option in schema[name])
    common = _types(first) & _types(second)
    if _values(first) is not None and _values(second) is not None:
        return any(_same(a, b) for a, b in itertools.product(_values(first) or (), _values(second) or ()))
    if common != {"object"}:
        return bool(common)
    return not _told_apart(first, second, resolve, level)


def _told_apart(first: dict[str, Any], second: dict[str, Any], resolve: Resolve, level: int) -> bool:
    """Whether a property that both require has no value for both, or one requires what the other rules out."""
    for schema, other in ((first, second), (second, first)):
        known = other.get("properties", {})
        for name in schema.get("required", ()):
            if name not in known and other.get("additionalProperties") is False:
                return True
            if name in other.get("required", ()) and not may_overlap(
                schema.get("properties", {}).get(name, True), known.get(name, True), resolve, level + 1
            ):
                return True
    return False


def _resolved(schema: object, resolve: Resolve) -> object:
    for _ in range(MOST_LEVELS):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        schema = resolve(schema["$ref"])
    return True


def _values(schema: dict[str, Any]) -> list[Any] | None:
    """The values of an `enum` or `const`."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _types(schema: dict[str, Any]) -> set[str]:
    values = _values(schema)
    if values is not None:
        return {type_of(value) for value in values}
    given = schema.get("type", _TYPES)
    types = {given} if isinstance(given, str) else set(given)
    return types | {"integer"} if "number" in types else types


def _same(first: object, second: object) -> bool:
    """Equality of JSON values: true is not 1, and 1 is 1.0."""
    return _text(first) == _text(second)


def _text(value: object) -> str:
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
