"""Descriptions of real models, run in numpy, against another implementation's greedy answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pageloom.model.decoder import load_model_description
from pageloom.model.source import FileSource
from tests.reference_decoder import GgufWeights, ReferenceDecoder
from tests.unit.model.conftest import golden

TOKENS = 12
"""Of each answer. All of them agree; more would only take longer."""


async def test_smollm2_gives_the_golden_answers(smollm2_path: Path) -> None:
    await check_answers(smollm2_path, "smollm2_greedy", "chat_gravity", "raw_code")


async def test_gemma_3_gives_the_golden_answer_to_a_prompt_longer_than_its_window(gemma3_path: Path) -> None:
    await check_answers(gemma3_path, "gemma3_greedy", "raw_long_swa")


async def check_answers(path: Path, file: str, *names: str) -> None:
    """Given the golden tokens before it, each golden token is the most likely, by the golden margin."""
    with FileSource(path) as source:
        description = await load_model_description(source)
    assert description.warnings == ()
    reference = ReferenceDecoder(description.decoder, GgufWeights(path))
    for case in golden(file)["cases"]:
        if case["name"] in names:
            ids = [*case["prompt_ids"], *case["output_ids"][: TOKENS - 1]]
            logits = reference.run(ids, list(range(len(ids) - TOKENS, len(ids))))
            assert logits.argmax(axis=-1).tolist() == case["output_ids"][:TOKENS]
            second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
            np.testing.assert_allclose(first - second, case["margins"][:TOKENS], atol=2e-3)
