"""Where an answer is cut, and what is said of each token of it, text held back or not."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from tests.worker.openai_kit import chat, complete


@pytest.fixture(scope="module")
def text(client: OpenAI) -> str:
    """An answer without a stop, for the tests of stops."""
    text = complete(client, prompt="world hello", max_tokens=24, seed=3, temperature=1.2).choices[0].text
    assert len(text) >= 16
    return str(text)


class TestStop:
    def stopped(self, client: OpenAI, stop: str | list[str], **options: Any) -> Any:
        given = {"prompt": "world hello", "max_tokens": 24, "seed": 3, "temperature": 1.2, "stop": stop}
        return complete(client, **given, **options)

    @pytest.mark.parametrize("start", range(1, 12))
    def test_the_text_ends_before_the_stop_wherever_tokens_split_it(
        self, client: OpenAI, text: str, start: int
    ) -> None:
        stop = text[start : start + 4]
        choice = self.stopped(client, stop).choices[0]
        assert choice.text == text[: text.index(stop)]
        assert choice.finish_reason == "stop"
        chunks = [chunk.choices[0] for chunk in self.stopped(client, stop, stream=True)]
        assert "".join(chunk.text for chunk in chunks) == choice.text
        assert chunks[-1].finish_reason == "stop"

    def test_the_stop_that_is_complete_first_counts(self, client: OpenAI, text: str) -> None:
        stops = [text[6:10], text[6:8], text[9:13]]
        first = min(text.index(stop) for stop in stops[:2])
        assert self.stopped(client, stops).choices[0].text == text[:first]

    def test_no_more_is_computed_than_the_stop_needs(self, client: OpenAI, text: str) -> None:
        assert self.stopped(client, text[2:4]).usage.completion_tokens < 24


class TestLogprobs:
    def test_a_chat_has_an_entry_a_token_those_included_whose_text_is_held_back(self, client: OpenAI) -> None:
        # The tiny model says bytes that are no characters, and most of this stop string.
        text = chat(client, max_tokens=30).choices[0].message.content
        options = {"max_tokens": 30, "logprobs": True, "top_logprobs": 3, "stop": text[-9:] + "never"}
        answer = chat(client, **options)
        entries = answer.choices[0].logprobs.content
        assert len(entries) == answer.usage.completion_tokens == 30
        for entry in entries:
            assert entry.logprob == max(other.logprob for other in entry.top_logprobs), "greedy takes the best"
            assert len(entry.top_logprobs) == 3
        spoken = b"".join(bytes(entry.bytes) for entry in entries)
        assert spoken.decode(errors="replace") == answer.choices[0].message.content
        streamed = [
            entry
            for chunk in chat(client, stream=True, **options)
            if chunk.choices[0].logprobs
            for entry in chunk.choices[0].logprobs.content
        ]
        assert streamed == entries

    def test_a_completion_has_its_own_schema(self, client: OpenAI) -> None:
        choice = complete(client, logprobs=2, max_tokens=20).choices[0]
        logprobs = choice.logprobs
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 20
        for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
            assert len(top) == 2
            assert top[token] == logprob == max(top.values())
        for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
            if not token.startswith("bytes:"):
                assert choice.text[offset : offset + len(token)] == token
        chunks = [chunk.choices[0].logprobs for chunk in complete(client, logprobs=2, max_tokens=20, stream=True)]
        for field in ("tokens", "token_logprobs", "text_offset"):
            streamed = [value for chunk in chunks if chunk for value in getattr(chunk, field)]
            assert streamed == getattr(logprobs, field)

    def test_there_are_none_unless_asked_for(self, client: OpenAI) -> None:
        assert chat(client).choices[0].logprobs is None
        assert complete(client).choices[0].logprobs is None
