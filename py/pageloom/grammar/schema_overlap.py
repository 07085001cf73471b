"""Whether two JSON Schemas may allow the same value: what `oneOf` has to rule out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pageloom.errors import NotSupported

MOST_LEVELS = 8
MOST_COMPARISONS = 30_000
"""Of schemas, values and names, for all of a schema: alternatives within alternatives multiply."""
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})

Resolve = Callable[[object], object]


def type_of(value: object) -> str:
    """The name of a JSON value's type; a number without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


class Overlaps:
    """Compares the schemas of one schema, two by two."""

    def __init__(self, resolve: Resolve) -> None:
        """`resolve` gives what a `$ref` stands for."""
        self._resolve = resolve
        self._left = MOST_COMPARISONS

    def may_overlap(self, first: object, second: object, level: int = 0) -> bool:
        """False only where no value fits both. Raises `NotSupported` once all comparisons together are too many."""
        self._spend(1)
        first, second = _resolved(first, self._resolve), _resolved(second, self._resolve)
        if first is False or second is False:
            return False
        if not isinstance(first, dict) or not isinstance(second, dict) or level > MOST_LEVELS:
            return True
        for schema, other in ((first, second), (second, first)):
            for name in ("anyOf", "oneOf"):
                if isinstance(schema.get(name), list):
                    return any(self.may_overlap(option, other, level + 1) for option in schema[name])
        values, others = _values(first), _values(second)
        self._spend(len(values or ()) + len(others or ()))
        if values is not None and others is not None:
            return not {_text(value) for value in values}.isdisjoint(_text(value) for value in others)
        common = _types(first) & _types(second)
        if common != {"object"}:
            return bool(common)
        return not self._told_apart(first, second, level)

    def _told_apart(self, first: dict[str, Any], second: dict[str, Any], level: int) -> bool:
        """Whether a property that both require has no value for both, or one requires what the other rules out."""
        for schema, other in ((first, second), (second, first)):
            known, required = other.get("properties", {}), set(other.get("required", ()))
            self._spend(len(required))
            for name in schema.get("required", ()):
                if name not in known and other.get("additionalProperties") is False:
                    return True
                mine = schema.get("properties", {}).get(name, True)
                if name in required and not self.may_overlap(mine, known.get(name, True), level + 1):
                    return True
        return False

    def _spend(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise NotSupported(
                f"telling the alternatives of oneOf apart takes over {MOST_COMPARISONS} comparisons; use anyOf",
                param="#",
            )


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


def _text(value: object) -> str:
    """The same for equal JSON values alone: true is not 1, and 1 is 1.0."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
