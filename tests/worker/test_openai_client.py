"""The official client gets what OpenAI's API promises: shapes, endings, logprobs, usage, errors."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.worker.openai_kit import HELLO, chat, complete, text_of
from tests.worker.running_worker import MODEL, RunningWorker


def test_the_model_is_listed_under_its_files_name(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_a_chat_has_an_answer_a_reason_to_end_and_a_usage_that_adds_up(client: OpenAI) -> None:
    answer = chat(client)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12


def test_a_stream_says_what_the_whole_answer_says(client: OpenAI) -> None:
    chunks = list(chat(client, stream=True))
    assert text_of(chunks) == chat(client).choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_usage_ends_a_stream_only_where_it_was_asked_for(client: OpenAI) -> None:
    assert all(chunk.usage is None and chunk.choices for chunk in chat(client, stream=True))
    *chunks, last = chat(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == 12
    assert all(chunk.usage is None for chunk in chunks)


def test_an_answer_can_be_sent_back_as_the_client_gives_it(client: OpenAI) -> None:
    first = chat(client).choices[0].message
    second = chat(client, messages=[*HELLO, first, {"role": "user", "content": "world"}])
    assert second.choices[0].message.content
    assert second.usage.prompt_tokens > chat(client).usage.prompt_tokens


def test_parts_of_a_message_are_its_lines(client: OpenAI) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    whole = chat(client, messages=[{"role": "user", "content": "hel\nlo"}])
    assert chat(client, messages=parts).choices[0].message.content == whole.choices[0].message.content


def test_n_answers_differ_by_their_seed_and_come_again_with_it(client: OpenAI) -> None:
    options = {"n": 4, "temperature": 1.5, "seed": 7}
    first, again = chat(client, **options), chat(client, **options)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert len(set(texts)) > 1
    assert texts == [choice.message.content for choice in again.choices]
    assert texts[2] == chat(client, temperature=1.5, seed=9).choices[0].message.content
    assert first.usage.prompt_tokens == chat(client).usage.prompt_tokens
    assert first.usage.completion_tokens == sum(
        chat(client, temperature=1.5, seed=seed).usage.completion_tokens for seed in range(7, 11)
    )


def test_n_streams_come_mixed_and_each_is_whole(client: OpenAI) -> None:
    options = {"n": 3, "temperature": 1.5, "seed": 7}
    chunks = list(chat(client, stream=True, **options))
    whole = chat(client, **options)
    assert [text_of(chunks, index) for index in range(3)] == [choice.message.content for choice in whole.choices]


def test_several_prompts_in_one_completion_are_answered_in_their_order(client: OpenAI) -> None:
    prompts = ["hello", "a", "world"]
    together = complete(client, prompt=prompts, n=2)
    assert [choice.index for choice in together.choices] == list(range(6))
    alone = [complete(client, prompt=prompt).choices[0].text for prompt in prompts]
    assert [choice.text for choice in together.choices] == [text for text in alone for _ in range(2)]
    assert together.usage.prompt_tokens == sum(complete(client, prompt=p).usage.prompt_tokens for p in prompts)


def test_a_prompt_of_token_ids_is_taken_as_it_stands(client: OpenAI) -> None:
    ids = [[5, 6, 7], [8, 9]]
    assert complete(client, prompt=ids).usage.prompt_tokens == 5
    assert complete(client, prompt=ids[0]).choices[0].text == complete(client, prompt=ids).choices[0].text


def test_a_completion_says_16_tokens_unless_told(client: OpenAI) -> None:
    assert complete(client, max_tokens=openai.omit).usage.completion_tokens == 16


def test_echo_puts_the_prompt_before_the_answer(client: OpenAI) -> None:
    plain = complete(client).choices[0].text
    assert complete(client, echo=True).choices[0].text == "hello" + plain
    assert "".join(chunk.choices[0].text for chunk in complete(client, echo=True, stream=True)) == "hello" + plain
    ids = complete(client, prompt=[34, 35], echo=True).choices[0].text
    assert ids.startswith("@A"), "tokens 34 and 35 stand for these characters"


def test_max_completion_tokens_is_max_tokens(client: OpenAI) -> None:
    answer = chat(client, max_tokens=openai.omit, max_completion_tokens=3)
    assert answer.usage.completion_tokens == 3


def test_more_tokens_than_there_is_room_for_end_at_the_context(client: OpenAI) -> None:
    answer = complete(client, prompt=[5] * 500, max_tokens=1000, logit_bias={"40": 100})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == 512


def test_a_bias_decides_the_token_and_a_penalty_takes_it_away(client: OpenAI) -> None:
    always = complete(client, logit_bias={"40": 100}, max_tokens=4).choices[0].text
    assert always == "FFFF"
    biased = {"logit_bias": {"40": 12, "41": 11.5}, "max_tokens": 8, "logprobs": 0}
    # Of the two, the one that was said less often is the next, where each time takes one from its logit.
    plain = complete(client, **biased).choices[0].logprobs
    penalised = complete(client, frequency_penalty=2.0, **biased).choices[0].logprobs
    assert plain.tokens != penalised.tokens


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 200}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": "1"}, "frequency_penalty"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"seed": 1.5}, "seed"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"extra_body": {"colour": 1}}, "colour"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"messages": [{"role": "user", "content": "a" * 2000}]}, "prompt"),
        ({"messages": [{"role": "user", "content": "a" * 1_000_000}]}, "prompt"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a" * 1_000_000}]}]}, "prompt"),
    ],
)
def test_what_cannot_be_is_a_400_that_names_the_field(client: OpenAI, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, **options)
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert refused.value.message


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt_ids"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [[1, 2], 3]}, "prompt"),
        ({"prompt": [-1]}, "prompt_ids[0]"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 2}, "n"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_a_completion_is_refused_with_the_field_too(client: OpenAI, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        complete(client, **options)
    assert refused.value.param == param


def test_fields_that_change_nothing_are_taken(client: OpenAI) -> None:
    harmless = {"user": "u", "metadata": {"a": "b"}, "store": False, "tools": [], "response_format": {"type": "text"}}
    plain = chat(client).choices[0].message.content
    assert chat(client, **harmless, extra_body={"best_of": None}).choices[0].message.content == plain


def test_another_model_is_a_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        chat(client, model="gpt-4o")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_refused_stream_is_a_status_and_not_a_stream(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        chat(client, stream=True, temperature=9)


def test_who_leaves_a_stream_frees_its_place_at_once(worker: RunningWorker, client: OpenAI) -> None:
    endless = {"max_tokens": 400, "logit_bias": {"40": 100}}
    for _ in range(2):
        stream = chat(client, stream=True, **endless)
        next(iter(stream))
        stream.close()
        stream.close()
    before_the_first_token = chat(client, stream=True, **endless)
    before_the_first_token.close()
    assert chat(client).choices[0].finish_reason == "length"
    assert worker.metrics()["pageloom_requests_running"] == 0
    assert worker.metrics()['pageloom_pages{state="used"}'] == 0
