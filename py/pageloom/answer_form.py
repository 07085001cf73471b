"""What the whole of an answer has to be: JSON, or one of a few given labels.

{"response_format": {"type": "json_object"}}                        OpenAI's; see `grammar.response_format`
{"choices": ["positive", "negative"]}                               the most probable label, with probabilities
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pageloom.engine.events import LabelScore
from pageloom.errors import InvalidArgument, shown
from pageloom.grammar.automaton import Automaton
from pageloom.grammar.response_format import grammar_of

ANSWER_FIELDS = ("response_format", "choices")
MAX_CHOICES = 256
BESIDE_CHOICES = frozenset({"temperature", "seed", "max_tokens"})
"""Sampling fields that a classification may have; the last one changes nothing."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """At most one of the two is there; without them an answer is any text."""

    response_format: Mapping[str, object] | None = None
    choices: tuple[str, ...] = ()

    @property
    def grammar(self) -> Automaton | None:
        return None if self.response_format is None else grammar_of(self.response_format)

    def to_fields(self) -> dict[str, object]:
        """The fields that `parse_answer_form` reads as this form."""
        fields: dict[str, object] = {}
        if self.response_format is not None:
            fields["response_format"] = self.response_format
        if self.choices:
            fields["choices"] = list(self.choices)
        return fields


def parse_answer_form(given: Mapping[str, object]) -> AnswerForm:
    """The form that the fields of a job ask for. Raises as `grammar_of` does, and `InvalidArgument` for `choices` that
    are none and for fields beside them that mean nothing there."""
    if "choices" in given:
        choices = _choices(given["choices"])
        for name in given:
            if name not in BESIDE_CHOICES and name != "choices":
                raise InvalidArgument(
                    f"{name} does not go with choices, which are compared and not sampled token by token", param=name
                )
        return AnswerForm(choices=choices)
    response_format = given.get("response_format")
    if response_format is None or grammar_of(response_format) is None:
        return AnswerForm()
    assert isinstance(response_format, dict), "grammar_of takes nothing else"
    return AnswerForm(response_format=response_format)


def label_fields(labels: Sequence[LabelScore]) -> dict[str, object]:
    """What an answer says of its labels; nothing where it is no classification."""
    if not labels:
        return {}
    return {
        "label_probabilities": {score.label: score.probability for score in labels},
        "label_logprobs": {score.label: score.logprob for score in labels},
    }


def _choices(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_CHOICES:
        raise InvalidArgument(f"choices is {shown(value)}; it is a list of 1 to {MAX_CHOICES} labels", param="choices")
    for index, label in enumerate(value):
        if not isinstance(label, str) or not label:
            raise InvalidArgument(f"choices[{index}] is {shown(label)}; a label is a text", param=f"choices[{index}]")
        if label in value[:index]:
            raise InvalidArgument(f"choices has {shown(label)} twice", param=f"choices[{index}]")
        try:
            label.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"choices[{index}] is not valid Unicode", param=f"choices[{index}]") from error
    return tuple(value)
