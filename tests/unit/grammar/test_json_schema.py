"""What of JSON Schema is kept, and that nothing else is passed over in silence."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageloom.errors import InvalidArgument, NotSupported
from pageloom.grammar.automaton import Automaton
from pageloom.grammar.expressions import Expression, Literal, Nested, Repeat, Sequence
from pageloom.grammar.json_grammar import ANY_OBJECT, INTEGER, NUMBER, string
from pageloom.grammar.json_schema import compile_schema
from pageloom.grammar.response_format import grammar_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "pet": {"enum": ["cat", None]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {"type": "array", "items": {"$ref": "#"}}
LIST = {"$defs": {"node": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}}}


def accepts(automaton: Automaton, text: str | bytes) -> bool:
    positions = automaton.start
    for byte in text.encode() if isinstance(text, str) else text:
        positions = automaton.advance(positions, byte)
    return None in positions


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (PERSON, '{"name":"a","age":1} {"name": "", "age": -0, "pet": null}', '{"age":1,"name":"a"} {"name":"a"} []'),
        ({"properties": {"a": {}}}, '{} {"a":[1,{}]}', '{"b":1} 1'),
        ({"type": "object", "additionalProperties": {"type": "null"}}, '{} {"x":null} {"x":null,"y":null}', '{"x":1}'),
        ({"type": "object", "additionalProperties": False}, "{}", '{"a":1}'),
        ({"required": ["a"], "properties": {"b": {"type": "null"}}}, '{"b":null,"a":7} {"a":[]}', '{} {"b":null}'),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, "[1] [1,2]", "[] [1,2,3]"),
        ({"items": {"const": 1}, "maxItems": 0}, "[]", "[1]"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, '"ab" "日本語" "\\n\\u00e9" "😀😀"', '"a" "abcd" "日"'),
        ({"type": ["integer", "null"]}, "1 null", '"a" true 1.5'),
        ({"enum": [1, "a", [], {"b": [True]}]}, '1 "a" [] {"b":[true]}', '2 "b" {"b":[]}'),
        ({"enum": [1, "a", None, 2.5], "type": ["string", "number"]}, '1 "a" 2.5', "null"),
        ({"const": {"a": 1}}, '{"a":1}', '{"a":2} {}'),
        ({"anyOf": [{"const": "ab"}, {"type": "string", "maxLength": 1}]}, '"ab" "a" ""', '"ac" "abc"'),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, '1 "a"', "null"),
        (TREE, "[] [[],[[]]]", "[1] {}"),
        ({"$ref": "#/$defs/node", **LIST}, '{} {"next":null} {"next":{"next":{}}}', '{"next":1}'),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"const": 1}}}, "1", "2"),
        ({"anyOf": [{"$ref": "#"}, {"const": 1}]}, "1", "2"),
        (True, '1 "a" [{}]', "x [1"),
    ],
)
def test_texts_are_in_the_grammar_as_they_are_valid(schema: Any, valid: str, invalid: str) -> None:
    automaton = compile_schema(schema)
    decoder = json.JSONDecoder()
    for texts, expected in ((valid, True), (invalid, False)):
        while texts := texts.lstrip():
            try:
                length = decoder.raw_decode(texts)[1]
            except ValueError:
                length = len(texts.split(" ")[0])
            assert accepts(automaton, texts[:length]) == expected, texts[:length]
            texts = texts[length:]


KEYWORDS = {
    "pattern": "a", "format": "date", "minimum": 1, "maximum": 1, "exclusiveMinimum": 1, "multipleOf": 2, "not": {},
    "allOf": [{}], "if": {}, "then": {}, "else": {}, "prefixItems": [], "contains": {}, "uniqueItems": True,
    "minProperties": 1, "maxProperties": 1, "patternProperties": {}, "propertyNames": {}, "dependentRequired": {},
    "dependentSchemas": {}, "unevaluatedProperties": False, "unevaluatedItems": False, "$dynamicRef": "#a",
    "$anchor": "a", "$id": "a", "anything": 1,
}  # fmt: skip


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_that_is_not_kept_is_refused_where_it_stands(keyword: str) -> None:
    schema = {"properties": {"a/b": {"items": [{}, {keyword: KEYWORDS[keyword]}][1]}}}
    with pytest.raises(NotSupported) as refused:
        compile_schema(schema)
    assert refused.value.param == f"#/properties/a~1b/items/{keyword}"
    assert keyword in refused.value.message


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (5, "#"),
        ({"items": "x"}, "#/items"),
        ({"type": "text"}, "#/type"),
        ({"type": []}, "#/type"),
        ({"type": [["string"]]}, "#/type"),
        ({"enum": []}, "#/enum"),
        ({"enum": 1}, "#/enum"),
        ({"enum": ["\ud800"]}, "#/enum"),
        ({"anyOf": []}, "#/anyOf"),
        ({"anyOf": [{}, {"type": 1}]}, "#/anyOf/1/type"),
        ({"oneOf": [{"$ref": "#/x"}, {}], "$defs": {}}, "#/x"),
        ({"$ref": 1}, "#/$ref"),
        ({"$ref": "#/$defs/x"}, "#/$defs/x"),
        ({"properties": []}, "#/properties"),
        ({"properties": {"\ud800": {}}}, "#"),
        ({"properties": {"a": {"type": "string", "minLength": -1}}}, "#/properties/a/minLength"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "#/maxLength"),
        ({"type": "array", "maxItems": True}, "#/maxItems"),
        ({"type": "array", "maxItems": 1.5}, "#/maxItems"),
        ({"required": "a"}, "#/required"),
        ({"required": ["a"], "additionalProperties": 1}, "#/additionalProperties"),
        (False, "#"),
        ({"$ref": "#"}, "#"),
        ({"required": ["a"], "properties": {"a": {"$ref": "#"}}}, "#"),
        ({"required": ["a"], "additionalProperties": False}, "#"),
        ({"enum": ["a"], "type": "integer"}, "#"),
        ({"items": False, "minItems": 1}, "#"),
    ],
)
def test_a_schema_that_is_none_or_allows_nothing_is_refused(schema: Any, pointer: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        compile_schema(schema)
    assert refused.value.param == pointer


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {}}}, "#/type"),
        ({"enum": ["a"], "minLength": 1}, "#/minLength"),
        ({"anyOf": [{}], "type": "string"}, "#/type"),
        ({"$ref": "https://example.com/schema"}, "#/$ref"),
        ({"properties": {"a": {}}, "additionalProperties": {}}, "#/additionalProperties"),
        ({"enum": list(range(6000))}, "#/enum"),
    ],
)
def test_keywords_that_would_have_to_hold_together_are_refused(schema: Any, pointer: str) -> None:
    with pytest.raises(NotSupported) as refused:
        compile_schema(schema)
    assert refused.value.param == pointer


def nested(levels: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema, "minItems": 1}
    return schema


def test_depth_is_bounded_in_schemas_and_in_answers() -> None:
    assert accepts(compile_schema(nested(32)), "[" * 32 + "null" + "]" * 32)
    for levels in (33, 65, 300):
        with pytest.raises(NotSupported):
            compile_schema(nested(levels))
    tree = compile_schema(TREE)
    assert accepts(tree, "[" * 32 + "]" * 32)
    assert not accepts(tree, "[" * 33 + "]" * 33)
    chain = {"$defs": {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}]} for i in range(900)}, "$ref": "#/$defs/0"}
    chain["$defs"]["900"] = {"const": 1}
    assert accepts(compile_schema(chain), "1")


ONE_KIND = {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}
OTHER_KIND = {"properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("options", "disjoint"),
    [
        ([{"type": "integer"}, {"type": "string"}], True),
        ([{"type": "integer"}, {"type": "number"}], False),
        ([{"const": 1}, {"const": True}], True),
        ([{"const": 1}, {"const": 1.0}], False),
        ([{"enum": ["a", "b"]}, {"enum": ["c"]}], True),
        ([{"enum": ["a", "b"]}, {"type": "string"}], False),
        ([{"enum": [1, None]}, {"type": "string"}], True),
        ([ONE_KIND, OTHER_KIND], False),  # without a type they allow every number
        ([{"type": "object", **ONE_KIND}, {"type": "object", **OTHER_KIND}], True),
        ([{"type": "object", **ONE_KIND}, {"type": "object", **OTHER_KIND, "required": []}], False),
        ([{"type": "object", "required": ["a"]}, {"type": "object", "additionalProperties": False}], True),
        ([{"$ref": "#/$defs/text"}, {"type": "null"}], True),
        ([{"$ref": "#/$defs/text"}, {"anyOf": [{"type": "null"}, {"const": "a"}]}], False),
        ([{"type": "null"}, {"type": "string"}, {"type": ["null", "array"]}], False),
    ],
)
def test_one_of_is_taken_where_no_value_fits_two_alternatives(options: list[Any], disjoint: bool) -> None:
    schema = {"oneOf": options, "$defs": {"text": {"type": "string"}}}
    if disjoint:
        compile_schema(schema)
        return
    with pytest.raises(NotSupported) as refused:
        compile_schema(schema)
    assert refused.value.param.startswith("#/oneOf/")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([*'ab1"\\/nu\nd8DF0', "\\u", "é", "😀", "\\n"]), max_size=9).map("".join))
def test_a_text_is_a_string_where_the_json_module_reads_one(body: str) -> None:
    try:
        value = json.loads(f'"{body}"')
        expected = isinstance(value, str) and "\\ud8" not in body.lower() and _has_no_surrogate_escape(body)
    except ValueError:
        expected = False
    assert accepts(Automaton(string()), f'"{body}"') == expected


def _has_no_surrogate_escape(body: str) -> bool:
    decoded = json.loads(f'"{body}"')
    written = sum(len(character.encode("utf-16-le")) // 2 for character in body if ord(character) > 0xFFFF)
    escaped = sum(2 for character in decoded if ord(character) > 0xFFFF) + sum(
        0xD800 <= ord(c) < 0xE000 for c in decoded
    )
    return written == escaped


def test_bytes_are_a_string_where_they_are_utf_8() -> None:
    automaton = Automaton(string())
    edges = bytes([0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0])
    for lead, second, length in itertools.product(range(0x7F, 0x100), edges, range(1, 5)):
        body = (bytes([lead, second]) + b"\x80\xbf")[:length]
        try:
            expected = bool(body.decode())
        except UnicodeDecodeError:
            expected = False
        assert accepts(automaton, b'"' + body + b'"') == expected, body


def test_what_is_repeated_fits_the_depth() -> None:
    inner: Expression = Repeat(Nested(Literal(b"a")))
    for _ in range(32):
        inner = Nested(Sequence((Literal(b"("), inner)))
    assert accepts(Automaton(inner), "(" * 32)
    assert not accepts(Automaton(inner), "(" * 32 + "a")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text("0123-+.eE", min_size=1, max_size=8))
def test_a_text_is_a_number_where_the_json_module_reads_one(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    assert accepts(Automaton(INTEGER), text) == isinstance(value, int)
    exponent = text.lower().partition("e")[2].lstrip("+-")
    assert accepts(Automaton(NUMBER), text) == (value is not None and len(exponent) <= 2)


def test_white_space_and_digits_end() -> None:
    automaton = Automaton(ANY_OBJECT)
    assert accepts(automaton, '{\n                "a": [\n 1,\n 2\n]\n}')
    for text in ('{  "a":1}', '{\n\n"a":1}', "{\n                 }", ' {"a":1}', '{"a" :1}', '{"a":1}\n'):
        assert not accepts(automaton, text)
    assert not accepts(Automaton(NUMBER), "1" * 16)
    assert not accepts(Automaton(NUMBER), "0." + "1" * 16)


@pytest.mark.parametrize(
    ("response_format", "param"),
    [
        ("json", "response_format"),
        ({}, "response_format"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_object", "schema": {}}, "response_format.schema"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": 1, "schema": {}}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}, "response_format.json_schema.x"),
        ({"type": "json_schema", "json_schema": {"schema": 1}}, "response_format.json_schema.schema#"),
    ],
)
def test_a_response_format_that_is_none_is_refused_with_the_field(response_format: Any, param: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        grammar_of(response_format)
    assert refused.value.param == param


def test_equal_formats_share_a_grammar_and_text_has_none() -> None:
    formats = [{"type": "json_schema", "json_schema": {"name": name, "schema": dict(PERSON)}} for name in "ab"]
    assert grammar_of(formats[0]) is grammar_of(formats[1])
    assert grammar_of({"type": "json_object"}) is grammar_of({"type": "json_object"})
    assert grammar_of({"type": "text"}) is None
