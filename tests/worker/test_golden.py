"""The golden ids of SmolLM2 over HTTP, among 32 clients at once as alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pageloom.backends.cuda.availability import why_unavailable
from pageloom.model.decoder import load_model_description
from pageloom.model.gguf_tokenizer import GgufTokenizer, build_tokenizer
from pageloom.model.native_core import NativeTokenizerCore
from pageloom.model.source import FileSource
from tests.golden_batch import CASES, MODEL
from tests.worker.running_worker import RunningWorker, serving, why_no_cpu

TOKENS = 16
CLIENTS = 32

WHY_NOT = {"cpu": why_no_cpu(), "cuda": why_unavailable()}


@pytest.fixture(scope="module", params=WHY_NOT)
def smollm2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    if reason := WHY_NOT[request.param]:
        pytest.skip(f"no models on {request.param}: {reason}")
    with serving(MODEL, tmp_path_factory.mktemp("worker"), "--name", "smollm2", backend=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer() -> GgufTokenizer:
    async def load() -> GgufTokenizer:
        with FileSource(Path(MODEL)) as source:
            return build_tokenizer((await load_model_description(source)).gguf, NativeTokenizerCore)

    return asyncio.run(load())


def golden(tokenizer: GgufTokenizer, case: Any) -> str:
    """The text of a case's first ids, as an answer has it."""
    ids = [token for token in case["output_ids"][:TOKENS] if token not in tokenizer.stop_ids]
    return b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace")


def test_completions_and_a_chat_give_the_golden_ids(smollm2: RunningWorker, tokenizer: GgufTokenizer) -> None:
    with smollm2.openai() as client:
        for case in CASES:
            for prompt in (case["prompt"], case["prompt_ids"]):
                answer = client.completions.create(model="smollm2", prompt=prompt, max_tokens=TOKENS, temperature=0)
                assert answer.choices[0].text == golden(tokenizer, case)
                assert answer.usage is not None
                assert answer.usage.prompt_tokens == len(case["prompt_ids"])
        question: Any = [{"role": "user", "content": "What is gravity?"}]
        chat = client.chat.completions.create(model="smollm2", messages=question, max_tokens=TOKENS, temperature=0)
        assert chat.choices[0].message.content == golden(tokenizer, CASES[0])


def test_32_clients_at_once_get_what_each_gets_alone(smollm2: RunningWorker, tokenizer: GgufTokenizer) -> None:
    prompts = [case["prompt"] for case in CASES] + [f"Item {number} of the list is" for number in range(3, CLIENTS)]

    def ask(prompt: str) -> str:
        with smollm2.openai() as client:
            answer = client.completions.create(model="smollm2", prompt=prompt, max_tokens=TOKENS, temperature=0)
            return answer.choices[0].text

    with ThreadPoolExecutor(CLIENTS) as clients:
        together = list(clients.map(ask, prompts))
    assert together[: len(CASES)] == [golden(tokenizer, case) for case in CASES]
    some = range(len(CASES), CLIENTS, 5)
    assert [together[index] for index in some] == [ask(prompts[index]) for index in some]
