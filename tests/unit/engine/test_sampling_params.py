"""Every field has a range, and a value outside it is refused by the field's name."""

import math
from typing import Any

import pytest

from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import InvalidArgument

REFUSED: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2.0),
    ("max_tokens", True),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", math.nan),
    ("temperature", "1"),
    ("top_p", 0.0),
    ("top_p", 1.1),
    ("top_k", -1),
    ("top_k", 1.5),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("seed", 1.5),
    ("seed", "1"),
    ("stop", ("",)),
    ("stop", ""),
    ("stop", (1,)),
    ("stop", None),
    ("stop", 5),
    ("stop", ("x",) * 17),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", ("a",)),
    ("stop_token_ids", None),
    ("stop_token_ids", 5),
    ("ignore_eos", 1),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", 1e-30),
    ("repetition_penalty", -1.0),
    ("repetition_penalty", math.inf),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("logit_bias", {1: 101.0}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {-1: 1.0}),
    ("logit_bias", {"1": 1.0}),
    ("logit_bias", None),
    ("logit_bias", [1]),
    ("logprobs", -1),
    ("logprobs", 21),
    ("logprobs", True),
]

ALLOWED: list[tuple[str, Any]] = [
    ("max_tokens", 1),
    ("max_tokens", None),
    ("temperature", 0),
    ("temperature", 2.0),
    ("top_p", 1),
    ("top_p", 1e-9),
    ("top_k", 0),
    ("min_p", 1.0),
    ("seed", -(2**63)),
    ("seed", 0),
    ("stop", ("x",) * 16),
    ("repetition_penalty", 0.01),
    ("repetition_penalty", 10),
    ("presence_penalty", -2.0),
    ("frequency_penalty", 2.0),
    ("logit_bias", {0: -100, 5: 100}),
    ("logprobs", 0),
    ("logprobs", 20),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_a_value_outside_its_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert field in caught.value.message


@pytest.mark.parametrize(("field", "value"), ALLOWED)
def test_the_ends_of_every_range_are_allowed(field: str, value: Any) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == value


def test_one_stop_string_may_stand_by_itself() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "needs_host"),
    [
        ({}, False),
        ({"logprobs": 3}, False),
        ({"logit_bias": {1: 5.0}}, False),
        ({"temperature": 0.5}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
    ],
)
def test_only_what_depends_on_sampled_tokens_needs_the_host(changes: dict[str, Any], needs_host: bool) -> None:
    assert SamplingParams(**changes).needs_host is needs_host
