"""What the tests with the official client ask, and how they read a stream."""

from __future__ import annotations

from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from tests.worker.running_worker import MODEL

HELLO: Any = [{"role": "user", "content": "hello"}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}


def chat(client: OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(**{"messages": HELLO, "max_tokens": 12, **GREEDY, **options})


def complete(client: OpenAI, **options: Any) -> Any:
    return client.completions.create(**{"prompt": "hello", "max_tokens": 12, **GREEDY, **options})


def text_of(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)
