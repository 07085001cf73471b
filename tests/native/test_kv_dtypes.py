"""A model's answers over KV caches of each element type, against a reference that rounds K and V as numpy does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import pageloom
from pageloom import native_home
from pageloom.backends.webgpu.device import Device
from pageloom.engine.runner_settings import KvDtype, RunnerSettings
from pageloom.model.decoder import ModelDescription, load_model_description
from tests.native.one_adapter import OneAdapter
from tests.reference_decoder import GgufWeights, ReferenceDecoder
from tests.tiny_model import write_tiny_model

SETTINGS = RunnerSettings(num_blocks=32, max_tokens=8, max_sequences=4, max_candidates=8, context_length=64)
PROMPTS = [list(range(3, 3 + length)) for length in (1, 17, 33, 8)]
NUMPY = {"float32": np.float32, "float16": np.float16, "float8e4m3fn": ml_dtypes.float8_e4m3fn}
BYTES = {"float32": 4, "float16": 2, "float8e4m3fn": 1}
NAMES = {"float32": "f32", "float16": "f16", "float8e4m3fn": "f8"}
SURE = 0.1
"""Of two logits: more than the rounding of sums can move them apart."""


async def _describe(path: Path) -> ModelDescription:
    return await load_model_description(await native_home.open_source(path))


@pytest.mark.asyncio
@pytest.mark.parametrize("dtype", ["float32", "float8e4m3fn"])
async def test_answers_are_those_of_a_cache_of_these_numbers(
    driver: str, device: Device, tmp_path: Path, dtype: KvDtype
) -> None:
    """`device` is asked for only to skip where the driver is absent."""
    path = write_tiny_model(tmp_path / "tiny.gguf")

    def stored(x: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        return x.astype(NUMPY[dtype]).astype(np.float64)

    decoder = (await _describe(path)).decoder
    reference = ReferenceDecoder(decoder, GgufWeights(path, np.float64), stored)
    model = await pageloom.load(path, settings=replace(SETTINGS, kv_dtype=dtype), home=OneAdapter(driver))
    try:
        jobs = [{"prompt_ids": ids, "max_tokens": 8, "ignore_eos": True} for ids in PROMPTS]
        outputs = [row["output_ids"] for row in await model.run_batch(jobs)]
        alone = [(await model.run_batch([job]))[0]["output_ids"] for job in jobs]
        pool = model.explain()["kv_cache"]
    finally:
        await model.close()
    elements = 2 * decoder.num_layers * 32 * 16 * decoder.kv_num_heads * decoder.head_size
    assert (pool["dtype"], pool["bytes"]) == (NAMES[dtype], elements * BYTES[dtype])
    assert alone == outputs
    compared = 0
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        sequence = list(prompt)
        for token in output:
            logits = reference.run(sequence)[0]
            first, second = np.sort(logits)[::-1][:2]
            if first - second < SURE:
                break
            assert token == int(logits.argmax())
            sequence.append(token)
            compared += 1
    assert compared >= 12
