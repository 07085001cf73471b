"""What a line of a batch may say, and how each fault in it is named."""

from dataclasses import replace

import pytest

from pageloom.answer_form import AnswerForm
from pageloom.engine.events import Completion, Timings, TokenLogprob, Usage
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import InvalidArgument
from pageloom.jobs import Job, RefusedJob, error_row, parse_job, parse_job_lines, result_row


def test_each_kind_of_prompt_is_kept_as_given():
    assert parse_job(0, {"prompt": "Hi"}) == Job(0, "prompt", prompt="Hi", sampling=SamplingParams())
    assert parse_job(1, {"prompt": "Hi", "raw": True}).raw
    messages = [{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert parse_job(2, {"messages": messages}).messages == tuple(messages)
    assert parse_job(3, {"prompt_ids": [0, 504]}).prompt_ids == (0, 504)


def test_an_empty_prompt_is_a_user_message_but_not_a_raw_text():
    assert parse_job(0, {"prompt": ""}).prompt == ""
    with pytest.raises(InvalidArgument, match="at least one character"):
        parse_job(0, {"prompt": "", "raw": True})


def test_sampling_fields_are_read_and_override_the_defaults():
    fields = {"prompt": "a", "max_tokens": 4, "stop": "END", "logit_bias": {"12": -100}, "seed": None}
    job = parse_job(0, fields, {"max_tokens": 9, "temperature": 0.5, "seed": 7})
    assert job.sampling == SamplingParams(max_tokens=4, temperature=0.5, seed=7, stop=("END",), logit_bias={12: -100})


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Hi", "raw": True, "temperature": 0.25, "stop": ["a", "b"], "stop_token_ids": [2]},
        {"messages": [{"role": "user", "content": "Hi"}], "logit_bias": {"12": 1.5}, "logprobs": 0},
        {"prompt_ids": [1, 2], "max_tokens": 3, "ignore_eos": True},
        {"prompt": "a", "choices": ["b", "c"], "temperature": 0.5},
        {"prompt": "a", "response_format": {"type": "json_object"}},
    ],
)
def test_a_job_written_out_is_read_as_the_same_job(fields):
    job = parse_job(5, fields)
    assert parse_job(5, job.to_fields()) == job


def test_the_form_of_an_answer_is_read_and_a_classification_takes_no_defaults():
    job = parse_job(0, {"prompt": "a", "choices": ["b", "c"], "max_tokens": 3}, {"temperature": 1.0, "top_p": 0.5})
    assert job.form.choices == ("b", "c")
    assert job.sampling == SamplingParams(max_tokens=3)
    assert parse_job(0, {"prompt": "a", "response_format": {"type": "text"}}).form == AnswerForm()
    assert parse_job(0, {"prompt": "a", "response_format": {"type": "json_object"}}).form.grammar is not None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"choices": "ab"}, "choices"),
        ({"choices": []}, "choices"),
        ({"choices": ["a"] * 257}, "choices"),
        ({"choices": ["a", ""]}, "choices[1]"),
        ({"choices": ["a", "b", "a"]}, "choices[2]"),
        ({"choices": ["\ud800"]}, "choices[0]"),
        ({"choices": ["a"], "logprobs": 1}, "logprobs"),
        ({"choices": ["a"], "response_format": {"type": "text"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_forms_that_cannot_be_or_contradict_the_sampling_are_refused(fields, param):
    with pytest.raises(InvalidArgument) as caught:
        parse_job(0, {"prompt": "a", **fields})
    assert caught.value.param == param


def test_a_result_row_has_the_ids_the_usage_and_openais_logprobs():
    completion = Completion(
        request_id="r",
        prompt_ids=(5, 6),
        output_ids=(1,),
        text="",
        finish_reason="length",
        stop_reason=None,
        usage=Usage(prompt_tokens=2, completion_tokens=1, cached_tokens=0),
        logprobs=(TokenLogprob(1, -0.5),),
        top_logprobs=((TokenLogprob(1, -0.5), TokenLogprob(2, -1.5)),),
        timings=Timings(0.1, 0.2),
    )
    row = result_row(3, completion, {1: b"\xf0\x9f", 2: b"b"}.__getitem__)
    chosen = {"token": "\ufffd", "bytes": [0xF0, 0x9F], "logprob": -0.5}
    assert row == {
        "index": 3,
        "prompt_ids": [5, 6],
        "output_ids": [1],
        "text": "",
        "finish_reason": "length",
        "usage": {"prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 0},
        "logprobs": [{**chosen, "top_logprobs": [chosen, {"token": "b", "bytes": [98], "logprob": -1.5}]}],
    }


ENDLESS = 10**5000
"""Python refuses to write out an integer of more than 4,300 digits."""


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ([1], None, "not an array"),
        ("text", None, "not a string"),
        ({}, "prompt", "exactly one of prompt, messages, prompt_ids"),
        ({"prompt": None}, "prompt", "none of them"),
        ({"prompt": "a", "prompt_ids": [1]}, "prompt", "prompt and prompt_ids"),
        ({"prompt": "a", "max_token": 3}, "max_token", "'max_token'"),
        ({"prompt": 5}, "prompt", "not a number"),
        ({"prompt": "a\ud800"}, "prompt", "surrogate pair at character 1"),
        ({"prompt": "a", "raw": 1}, "raw", "true or false"),
        ({"prompt_ids": [1], "raw": True}, "raw", "raw goes with prompt"),
        ({"prompt_ids": []}, "prompt_ids", "at least one token id"),
        ({"prompt_ids": "12"}, "prompt_ids", "array"),
        ({"prompt_ids": [1, -2]}, "prompt_ids[1]", "from 0, not -2"),
        ({"prompt_ids": [1, True]}, "prompt_ids[1]", "whole number from 0, not True"),
        ({"prompt_ids": [1.5]}, "prompt_ids[0]", "not 1.5"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": ["Hi"]}, "messages[0]", "not a string"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role", "not null"),
        ({"messages": [{"role": "", "content": "Hi"}]}, "messages[0].role", "empty"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "not null"),
        ({"messages": [{"role": "user", "content": "", "tone": 1}]}, "messages[0].tone", "'tone'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "text"),
        ({"prompt": "a", "max_tokens": "9"}, "max_tokens", "'9'"),
        ({"prompt": "a", "temperature": 2.5}, "temperature", "0 to 2"),
        ({"prompt": "a", "temperature": 10**400}, "temperature", "0 to 2"),
        ({"prompt": "a", "stop": ["x", 3]}, "stop", "not a number"),
        ({"prompt": "a", "stop": [""]}, "stop", "at least one character"),
        ({"prompt": "a", "logit_bias": [1]}, "logit_bias", "not an array"),
        ({"prompt": "a", "logit_bias": {"the": 1}}, "logit_bias", "'the'"),
        ({"prompt": "a", "logit_bias": {"9" * 5000: 1}}, "logit_bias", "token id"),
        ({"prompt": "a", "logit_bias": {"12": "x"}}, "logit_bias", "'x'"),
        ({"prompt": "a", "ignore_eos": "yes"}, "ignore_eos", "true or false"),
        ({"prompt": "a", "stop_token_ids": 2}, "stop_token_ids", "array"),
        (
            {"prompt": "a", "max_tokens": ENDLESS},
            "max_tokens",
            "a number of thousands of digits; allowed is 1",
        ),
        ({"prompt": "a", "seed": -ENDLESS}, "seed", "thousands of digits"),
        ({"prompt": "a", "temperature": ENDLESS}, "temperature", "0 to 2"),
        ({"prompt": "a", "stop_token_ids": [ENDLESS]}, "stop_token_ids", "thousands of digits"),
        ({"prompt": "a", "logit_bias": {ENDLESS: 1}}, "logit_bias", "thousands of digits"),
        ({"prompt_ids": [1, ENDLESS]}, "prompt_ids[1]", "from 0, not a number of thousands of digits"),
        ({"prompt": "a", ENDLESS: 1}, "a number of thousands of digits", "unknown field"),
        (
            {"messages": [{"role": "user", "content": "", ENDLESS: 1}]},
            "messages[0].a number of thousands of digits",
            "role",
        ),
    ],
)
def test_a_fault_is_refused_naming_its_field(fields, param, says):
    with pytest.raises(InvalidArgument) as caught:
        parse_job(0, fields)
    assert caught.value.param == param
    assert says in caught.value.message


def test_a_bad_line_takes_its_place_among_the_jobs_and_empty_lines_take_none():
    lines = ['{"prompt": "a"}\n', "\n", "{not json\n", '{"prompt_ids": [1], "top_k": NaN}', '{"prompt": "b"}']
    first, bad, constant, last = parse_job_lines(lines)
    assert first == parse_job(0, {"prompt": "a"})
    assert isinstance(bad, RefusedJob)
    assert bad.index == 1
    assert bad.error.message.startswith("line 3: the line is not JSON")
    assert isinstance(constant, RefusedJob)
    assert "NaN is not JSON" in constant.error.message
    assert last == parse_job(3, {"prompt": "b"})


def test_strict_raises_for_the_first_bad_line_by_its_number():
    with pytest.raises(InvalidArgument, match=r"^line 2: unknown field 'max'") as caught:
        parse_job_lines(['{"prompt": "a"}', '{"prompt": "a", "max": 1}', "nonsense"], strict=True)
    assert caught.value.param == "max"


def test_a_line_nested_without_end_is_refused_and_not_a_crash():
    (refused,) = parse_job_lines(["[" * 200_000])
    assert isinstance(refused, RefusedJob)


def test_an_error_row_holds_openais_error_object():
    error = InvalidArgument("no", param="stop")
    assert error_row(4, error) == {
        "index": 4,
        "error": {"message": "no", "type": "invalid_request_error", "param": "stop", "code": "invalid_argument"},
    }


def test_a_default_that_ends_no_answer_does_not_go_with_json() -> None:
    fields = {"prompt": "a", "response_format": {"type": "json_object"}}
    with pytest.raises(InvalidArgument, match="the answer ends with its JSON"):
        parse_job(0, fields, {"ignore_eos": True})


def test_a_job_made_in_python_may_contradict_itself_as_little():
    job = parse_job(0, {"prompt": "Hi", "response_format": {"type": "json_object"}})
    with pytest.raises(InvalidArgument, match="the answer ends with its JSON") as refused:
        replace(job, sampling=SamplingParams(ignore_eos=True))
    assert refused.value.param == "ignore_eos"
