"""The official client gets answers that keep their form: JSON of a schema, or one of the labels."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

from tests.worker.openai_kit import chat, complete, text_of

SCHEMA = {
    "type": "object",
    "properties": {
        "mood": {"enum": ["glad", "sad"]},
        "scores": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        "name": {"type": ["string", "null"], "maxLength": 5},
    },
    "required": ["mood", "scores"],
    "additionalProperties": False,
}
LABELS = ["hello", "hell", "world"]


def format_of(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "test", "schema": schema, "strict": True}}


def test_an_answer_is_json_of_the_schema_whole_and_streamed(client: OpenAI) -> None:
    for seed in range(4):
        options = {"response_format": format_of(SCHEMA), "max_tokens": 300, "temperature": 1.5, "seed": seed}
        choice = chat(client, **options).choices[0]
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        chunks = list(chat(client, stream=True, **options))
        assert text_of(chunks) == choice.message.content


def test_json_that_is_cut_says_so(client: OpenAI) -> None:
    choice = chat(client, response_format={"type": "json_object"}, max_tokens=1).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("length", "{")


def test_a_label_is_the_answer_and_has_its_probability_whole_and_streamed(client: OpenAI) -> None:
    whole = chat(client, max_tokens=None, temperature=None, extra_body={"choices": LABELS})
    choice = whole.choices[0]
    probabilities = choice.label_probabilities
    assert list(probabilities) == LABELS
    assert math.isclose(sum(probabilities.values()), 1)
    assert choice.message.content == max(probabilities, key=probabilities.get)
    assert choice.finish_reason == "stop"
    total = math.log(sum(map(math.exp, choice.label_logprobs.values())))
    for label in LABELS:
        assert math.isclose(probabilities[label], math.exp(choice.label_logprobs[label] - total), rel_tol=1e-9)
    chunks = list(chat(client, stream=True, extra_body={"choices": LABELS}))
    assert text_of(chunks) == choice.message.content
    assert chunks[-1].choices[0].label_probabilities == probabilities


def test_a_completion_is_classified_too(client: OpenAI) -> None:
    choice = complete(client, prompt="hello", extra_body={"choices": LABELS}).choices[0]
    assert choice.text in LABELS
    assert list(choice.label_probabilities) == LABELS


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": format_of({"type": "integer", "minimum": 1})}, "#/minimum"),
        ({"response_format": format_of({"properties": {"a/b": {"type": "date"}}})}, "#/properties/a~1b/type"),
        ({"extra_body": {"choices": ["a", "a"]}}, "choices[1]"),
        ({"extra_body": {"choices": []}}, "choices"),
        ({"extra_body": {"choices": ["a", "b"]}, "top_p": 0.5}, "top_p"),
    ],
)
def test_a_form_that_cannot_be_kept_is_refused_with_its_place(
    client: OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, **options)
    place = f"response_format.json_schema.schema{param}" if param.startswith("#") else param
    assert refused.value.param == place
