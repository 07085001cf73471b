"""Answers of a given form on real logits: the reference's label probabilities, valid JSON, the same in a crowd."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import pytest_asyncio
from kernels_kit import needs_kernels

import pageloom
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.language_model import LanguageModel
from tests.golden_batch import MODEL
from tests.reference_decoder import GgufWeights, ReferenceDecoder
from tests.tiny_model import write_tiny_model

pytestmark = [needs_kernels, pytest.mark.asyncio(loop_scope="module")]

DOCUMENT = Path(__file__).parents[2] / "docs" / "structured.md"
SETTINGS = RunnerSettings(num_blocks=128, max_tokens=32, max_sequences=16, max_candidates=8)
LABELS = ["hello", "hell", "world", "o", "hello world"]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string", "maxLength": 20}},
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
PROMPT = "Is the sentiment of this review positive or negative? Answer with one word.\nReview: "


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(tiny_path: Path) -> AsyncIterator[LanguageModel]:
    model = await pageloom.load(tiny_path, backend="cpu", settings=SETTINGS)
    yield model
    await model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def smollm2() -> AsyncIterator[LanguageModel]:
    model = await pageloom.load(MODEL, backend="cpu")
    yield model
    await model.close()


def format_of(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "test", "schema": schema}}


async def test_labels_are_as_probable_as_the_reference_says(tiny: LanguageModel, tiny_path: Path) -> None:
    prompt_ids = list(range(5, 42))
    (row,) = await tiny.run_batch([{"prompt_ids": prompt_ids, "choices": LABELS}])
    reference = ReferenceDecoder(tiny.description.decoder, GgufWeights(tiny_path, np.float64))
    for label in LABELS:
        ids = tiny.tokenizer.encode(label)
        logits = reference.run([*prompt_ids, *ids], list(range(len(prompt_ids) - 1, len(prompt_ids) + len(ids))))
        logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        said = sum(logprobs[position, token] for position, token in enumerate(ids))
        ended = np.logaddexp.reduce(logprobs[-1, sorted(tiny.tokenizer.stop_ids)])
        assert abs(row["label_logprobs"][label] - said - ended) < 2.0**-8 * np.abs(logits).max() * (len(ids) + 1)
    assert row["text"] == max(LABELS, key=row["label_logprobs"].__getitem__)
    assert row["output_ids"] == tiny.tokenizer.encode(row["text"])


async def test_forms_are_kept_alone_and_in_a_crowd_with_the_same_tokens(tiny: LanguageModel) -> None:
    schema = {**PERSON, "properties": {**PERSON["properties"], "name": {"type": "string", "maxLength": 4}}}
    rows: list[dict[str, Any]] = []
    for index in range(12):
        prompt = {"prompt_ids": list(range(3 + index, 20 + 2 * index))}
        sampling = {"temperature": 0.9, "seed": index, "max_tokens": 120}
        forms = [{"response_format": format_of(schema), **sampling}, {"choices": LABELS}, {"max_tokens": 12}]
        rows.append(prompt | forms[index % 3])
    together = await tiny.run_batch(rows)
    for row, asked in zip(together, rows, strict=True):
        (single,) = await tiny.run_batch([asked])
        assert (row["output_ids"], row["text"]) == (single["output_ids"], single["text"])
        for label, logprob in row.get("label_logprobs", {}).items():
            assert abs(logprob - single["label_logprobs"][label]) < 1e-5 * abs(logprob)
        if "response_format" in asked and row["finish_reason"] == "stop":
            jsonschema.validate(json.loads(row["text"]), schema)
    assert sum(row["finish_reason"] == "stop" for row in together) >= 4


async def test_a_real_model_tells_moods_apart_and_fills_in_a_form(smollm2: LanguageModel) -> None:
    moods = {"I love it, it is wonderful.": "positive", "Terrible. It broke and I hate it.": "negative"}
    people = {"Ann is 31 and lives in Oslo.": ("Oslo", 31), "Bob, 42, from Rome.": ("Rome", 42)}
    rows = [{"prompt": PROMPT + review, "choices": ["positive", "negative"]} for review in moods]
    for text in people:
        prompt = f"Extract name, age and city as JSON: {text}"
        rows.append({"prompt": prompt, "response_format": format_of(PERSON), "max_tokens": 80})
    answers = await smollm2.run_batch(rows)
    assert [answer["text"] for answer in answers[:2]] == list(moods.values())
    for answer, (city, age) in zip(answers[2:], people.values(), strict=True):
        person = json.loads(answer["text"])
        jsonschema.validate(person, PERSON)
        assert (person["city"], person["age"]) == (city, age)


async def test_the_commands_of_the_documents_label_a_review(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(MODEL.parent)
    (block,) = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    write, run = block.splitlines()
    subprocess.run(write, shell=True, cwd=tmp_path, check=True)
    command = [sys.executable, "-m", *shlex.split(run), "--backend", "cpu"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    row = json.loads((tmp_path / "labels.jsonl").read_text())
    assert row["text"] == "positive"
    assert list(row["label_probabilities"]) == ["positive", "negative"]
