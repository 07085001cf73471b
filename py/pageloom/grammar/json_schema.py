"""A JSON Schema as a grammar of the values that it allows.

A keyword is either kept or refused: an answer that is whole is always valid. What is kept is a part of draft 2020-12;
objects with `properties` have those alone, in the order of the schema, which is a part of what the schema allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from pageloom.errors import InvalidArgument, NotSupported, shown
from pageloom.grammar.automaton import MAX_DEPTH, Automaton
from pageloom.grammar.expressions import Choice, Expression, Rule
from pageloom.grammar.json_grammar import (
    ANY_VALUE,
    BY_TYPE,
    IMPOSSIBLE,
    Member,
    array_of,
    constant,
    map_of,
    object_of,
    string,
)
from pageloom.grammar.schema_overlap import Overlaps, type_of

MAX_PARTS = 5000
"""Schemas, values in constants, and names without a schema."""
MAX_SCHEMA_DEPTH = 64
ANNOTATIONS = frozenset(
    {
        "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema",
        "$defs", "definitions",
    }
)  # fmt: skip
"""Keywords that allow and forbid nothing."""
TYPE_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("minLength", "maxLength"),
}
_ALTERNATIVES = ("$ref", "enum", "const", "anyOf", "oneOf")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
"""Of an array, in a JSON pointer (RFC 6901, section 4)."""
KEYWORDS = frozenset({"type", *_ALTERNATIVES, *(name for names in TYPE_KEYWORDS.values() for name in names)})


def compile_schema(schema: object) -> Automaton:
    """The texts of all values that `schema`, parsed JSON, allows and that are nested at most `MAX_DEPTH` levels.

    Raises `NotSupported` for a keyword that cannot be kept and `InvalidArgument` for a schema that is none or allows
    nothing; `param` is "#" and the JSON pointer to what is at fault.
    """
    automaton = Automaton(_Compiler(schema).root())
    if not automaton.has_strings:
        raise InvalidArgument("the schema allows no value that ends", param="#")
    if not automaton.is_possible:
        raise NotSupported(f"the schema asks for values nested over {MAX_DEPTH} levels deep", param="#")
    return automaton


class _Compiler:
    """Schemas that are referred to become rules, which are filled in one after the other."""

    def __init__(self, schema: object) -> None:
        self._root = schema
        self._rules: dict[str, Rule] = {}
        self._unfinished: list[tuple[Rule, object, str]] = []
        self._one_ofs: list[tuple[list[object], str]] = []
        self._num_parts = 0

    def root(self) -> Expression:
        root = self._rule("#")
        while self._unfinished:
            rule, schema, pointer = self._unfinished.pop()
            rule.body = self._compile(schema, pointer, 0)
        overlaps = Overlaps(lambda reference: resolve(self._root, _local(reference, "#")))
        for schemas, pointer in self._one_ofs:
            _check_one_of(schemas, pointer, overlaps)
        return root

    def _rule(self, pointer: str) -> Rule:
        if pointer not in self._rules:
            rule = self._rules[pointer] = Rule()
            self._unfinished.append((rule, resolve(self._root, pointer), pointer))
        return self._rules[pointer]

    def _compile(self, schema: object, pointer: str, depth: int) -> Expression:
        self._count(1, pointer)
        if depth > MAX_SCHEMA_DEPTH:
            raise NotSupported(f"the schema has over {MAX_SCHEMA_DEPTH} levels; simplify it", param=pointer)
        if isinstance(schema, bool):
            return ANY_VALUE if schema else IMPOSSIBLE
        if not isinstance(schema, dict):
            _invalid(f"a schema is an object or true or false, not {shown(schema)}", pointer)
        keywords = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
        for name in keywords:
            if name not in KEYWORDS:
                raise NotSupported(
                    f"the keyword {shown(name)} is not supported; supported are {', '.join(sorted(KEYWORDS))}",
                    param=_at(pointer, name),
                )
        for name in _ALTERNATIVES:
            if name in keywords:
                return self._alternative(name, keywords, pointer, depth)
        types = _types(keywords, pointer)
        return _choice(self._typed(name, keywords, pointer, depth) for name in types)

    def _alternative(self, name: str, keywords: dict[str, Any], pointer: str, depth: int) -> Expression:
        """A keyword that says all alone what is allowed, but for the types beside an `enum` or `const`."""
        value = keywords[name]
        for other in keywords:
            if other != name and (other != "type" or name not in ("enum", "const")):
                raise NotSupported(f"{other} beside {name} is not supported", param=_at(pointer, other))
        here = _at(pointer, name)
        if name == "$ref":
            return self._rule(_local(value, here))
        if name == "const":
            return self._constants([value], keywords, pointer, here)
        if not isinstance(value, list) or not value:
            _invalid(f"{name} is {shown(value)}; it has to be a list with something in it", here)
        if name == "enum":
            return self._constants(value, keywords, pointer, here)
        if name == "oneOf":
            self._one_ofs.append((value, here))
        return _choice(self._compile(item, _at(here, index), depth + 1) for index, item in enumerate(value))

    def _count(self, parts: int, pointer: str) -> None:
        self._num_parts += parts
        if self._num_parts > MAX_PARTS:
            raise NotSupported(f"the schema has over {MAX_PARTS} parts; simplify it", param=pointer)

    def _constants(self, values: list[Any], keywords: dict[str, Any], pointer: str, here: str) -> Expression:
        types = _types(keywords, pointer) if "type" in keywords else None
        self._count(_num_values(values), here)
        allowed = [value for value in values if types is None or _is_of(value, types)]
        try:
            return _choice(constant(value) for value in allowed)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"a value cannot be written as JSON: {error}", param=here) from error

    def _typed(self, name: str, keywords: dict[str, Any], pointer: str, depth: int) -> Expression:
        """What the keywords allow of one type."""
        if name == "string":
            least, most = _bounds(keywords, "minLength", "maxLength", pointer)
            return string(least, most)
        if name == "array":
            least, most = _bounds(keywords, "minItems", "maxItems", pointer)
            item = self._compile(keywords.get("items", True), _at(pointer, "items"), depth + 1)
            return array_of(item, least, most)
        if name == "object":
            return self._object(keywords, pointer, depth)
        return BY_TYPE[name]

    def _object(self, keywords: dict[str, Any], pointer: str, depth: int) -> Expression:
        properties = keywords.get("properties", {})
        required = keywords.get("required", [])
        others = keywords.get("additionalProperties", True)
        if not isinstance(properties, dict):
            _invalid(f"properties is {shown(properties)}; it has to be an object", _at(pointer, "properties"))
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            _invalid(f"required is {shown(required)}; it has to be a list of names", _at(pointer, "required"))
        extra = [name for name in dict.fromkeys(required) if name not in properties]
        self._count(len(extra), _at(pointer, "required"))
        needed = frozenset(required)
        if not properties and not extra:
            value = self._compile(others, _at(pointer, "additionalProperties"), depth + 1)
            return map_of(value)
        if isinstance(others, dict):
            raise NotSupported(
                "additionalProperties with a schema beside properties or required is not supported; use false",
                param=_at(pointer, "additionalProperties"),
            )
        if not isinstance(others, bool):
            _invalid(f"additionalProperties is {shown(others)}", _at(pointer, "additionalProperties"))
        members = [
            Member(name, self._compile(value, _at(pointer, "properties", name), depth + 1), name in needed)
            for name, value in properties.items()
        ]
        members += [Member(name, ANY_VALUE if others else IMPOSSIBLE, required=True) for name in extra]
        try:
            return object_of(members)
        except ValueError as error:
            raise InvalidArgument(f"a name cannot be written as JSON: {error}", param=pointer) from error


def resolve(root: object, pointer: str) -> object:
    """What a JSON pointer behind "#" points to. Raises `InvalidArgument` where there is nothing."""
    value = root
    for part in pointer.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise InvalidArgument(f"there is nothing at {shown(pointer)} in the schema", param=pointer)
    return value


def _check_one_of(schemas: list[object], pointer: str, overlaps: Overlaps) -> None:
    for index, schema in enumerate(schemas):
        for other in schemas[:index]:
            try:
                overlap = overlaps.may_overlap(schema, other)
            except RecursionError as error:
                raise NotSupported("values nested so deep are not compared", param=_at(pointer, index)) from error
            if overlap:
                raise NotSupported(
                    "two alternatives of oneOf may allow the same value; use anyOf, or give each a required "
                    "property whose const or enum tells it apart",
                    param=_at(pointer, index),
                )


def _num_values(values: list[Any]) -> int:
    """How many values there are, those within them included."""
    number = 0
    pending = list(values)
    while pending:
        number += 1
        value = pending.pop()
        if isinstance(value, list | dict):
            pending.extend(value.values() if isinstance(value, dict) else value)
    return number


def _local(reference: object, pointer: str) -> str:
    """A reference within the schema, as it stands."""
    if not isinstance(reference, str):
        _invalid(f"$ref is {shown(reference)}; it has to be a text", pointer)
    if reference != "#" and not reference.startswith("#/"):
        raise NotSupported(f"$ref is {shown(reference)}; supported are # and #/ with a JSON pointer", param=pointer)
    return reference


def _types(keywords: Mapping[str, Any], pointer: str) -> list[str]:
    """The types that a schema allows. Without `type` those that its keywords are about, or all."""
    if "type" not in keywords:
        about = [name for name, names in TYPE_KEYWORDS.items() if any(key in keywords for key in names)]
        return about or [name for name in BY_TYPE if name != "integer"]
    given = keywords["type"]
    types = [given] if isinstance(given, str) else given
    if not isinstance(types, list) or not types or not all(isinstance(name, str) and name in BY_TYPE for name in types):
        _invalid(f"type is {shown(given)}; it is one or a list of {', '.join(BY_TYPE)}", _at(pointer, "type"))
    return list(dict.fromkeys(types))


def _is_of(value: object, types: Iterable[str]) -> bool:
    kind = type_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def _bounds(keywords: Mapping[str, Any], low: str, high: str, pointer: str) -> tuple[int, int | None]:
    numbers: list[int | None] = []
    for name in (low, high):
        value = keywords.get(name)
        whole = value is None or type_of(value) == "integer"
        if not whole or (value is not None and value < 0):
            _invalid(f"{name} is {shown(value)}; it has to be a whole number of at least 0", _at(pointer, name))
        numbers.append(None if value is None else int(value))
    least, most = numbers[0] or 0, numbers[1]
    if most is not None and most < least:
        _invalid(f"{high} is {most} and {low} {least}", _at(pointer, high))
    return least, most


def _choice(options: Iterable[Expression]) -> Expression:
    listed = tuple(options)
    return listed[0] if len(listed) == 1 else Choice(listed)


def _at(pointer: str, *names: object) -> str:
    return "/".join([pointer, *(str(name).replace("~", "~0").replace("/", "~1") for name in names)])


def _invalid(message: str, pointer: str) -> NoReturn:
    raise InvalidArgument(message, param=pointer)
