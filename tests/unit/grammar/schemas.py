"""Random schemas of the part that is kept."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "ab", "é", 'q"', "la la"]
VALUES = [None, True, False, 0, 1, -2.5, "a", "ab", "é\n", [], [1, "a"], {}, {"a": None}]
SCALARS = st.sampled_from([{"type": name} for name in ("string", "number", "integer", "boolean", "null")])

Schema = dict[str, Any]


@st.composite
def texts(draw: st.DrawFn) -> Schema:
    least, room = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return {"type": "string", **draw(st.sampled_from([{}, {"minLength": least, "maxLength": least + room}]))}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    least, room = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    bounds = draw(
        st.sampled_from([{}, {"minItems": least}, {"maxItems": room}, {"minItems": least, "maxItems": least}])
    )
    return {"type": "array", "items": draw(inner), **bounds}


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    required = [name for name in names if draw(st.booleans())]
    properties = {name: draw(inner) for name in names}
    if not names:
        return {"type": "object", "additionalProperties": draw(inner)}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def alternatives(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})


def _references(schema: Schema) -> Schema:
    """The schema with itself behind a reference, once by a way out and once by recursion."""
    tree = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/leaf"}]}, "maxItems": 2}
    return {"$defs": {"leaf": schema, "tree": tree}, "anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/tree"}]}


constants = st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda values: {"enum": values})
leaves = st.one_of(SCALARS, texts(), constants, st.sampled_from(VALUES).map(lambda value: {"const": value}))
parts = st.recursive(leaves, lambda inner: st.one_of(arrays(inner), objects(inner), alternatives(inner)), max_leaves=6)
schemas = st.one_of(parts, parts.map(_references))
