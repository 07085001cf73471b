"""Real models at length: SmolLM2 in a crowd, preempted, on dirty pages and sharing a prefix; Gemma 3's golden ids."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import pageloom
from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.engine.config import EngineConfig
from pageloom.language_model import LanguageModel
from tests.fetch_gemma3 import gemma3_path
from tests.golden_batch import CASES, MODEL, SAFE_MARGIN
from tests.native.one_adapter import OneAdapter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.asyncio(loop_scope="module")]

Rows = list[dict[str, Any]]
GEMMA_CASES = json.loads(Path(__file__).parents[1].joinpath("golden", "gemma3_greedy.json").read_text())["cases"]


@pytest.fixture(scope="module")
def home(driver: str, device: object) -> OneAdapter:
    """`device` is asked for only to skip where the driver is absent."""
    return OneAdapter(driver)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roomy(home: OneAdapter) -> AsyncIterator[LanguageModel]:
    model = await pageloom.load(MODEL, engine=EngineConfig(share_prefixes=False), home=home)
    yield model
    await model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cramped(home: OneAdapter) -> AsyncIterator[LanguageModel]:
    model = await pageloom.load(MODEL, settings=RunnerSettings(num_blocks=16), home=home)
    yield model
    await model.close()


def crowd(**sampling: object) -> Rows:
    """Sixteen prompts of 5 to 34 tokens, the golden ones among them, 8 new tokens each."""
    golden = [{"prompt_ids": case["prompt_ids"]} for case in CASES]
    others = [{"prompt": f"{'Please ' * index}name {index} animals."} for index in range(13)]
    return [{**row, "max_tokens": 8, **sampling} for row in (*golden, *others)]


async def ids_of(model: LanguageModel, rows: Rows) -> list[Any]:
    return [row["output_ids"] for row in await model.run_batch(rows)]


async def test_a_crowd_changes_no_id_nor_does_preemption(roomy: LanguageModel, cramped: LanguageModel) -> None:
    together = await ids_of(roomy, crowd())
    assert [ids[:8] for ids in together[:3]] == [case["output_ids"][:8] for case in CASES]
    assert together == [(await ids_of(roomy, [row]))[0] for row in crowd()]
    assert together == await ids_of(cramped, crowd())
    assert cramped.stats().preemptions > 0


async def test_dirty_pages_change_no_id(roomy: LanguageModel) -> None:
    before = await ids_of(roomy, crowd())
    cache = roomy.runner.plan.cache
    nan = np.full(cache.keys[0].size // 2, np.nan, np.float16)
    for buffer in (*cache.keys, *cache.values):
        roomy.runner.device.write(buffer, 0, nan)
    assert await ids_of(roomy, crowd()) == before


async def test_a_seeded_sample_is_the_same_in_a_batch_as_alone(roomy: LanguageModel) -> None:
    sampling = {"temperature": 0.8, "top_p": 0.95, "seed": 11}
    together = await ids_of(roomy, crowd(**sampling))
    assert together == [(await ids_of(roomy, [row]))[0] for row in crowd(**sampling)]


async def test_a_common_prefix_of_a_hundred_tokens_is_computed_once(home: OneAdapter) -> None:
    prefix = [500 + 7 * index for index in range(100)]
    rows = [{"prompt_ids": [*prefix, 900 + index], "max_tokens": 1} for index in range(16)]
    model = await pageloom.load(MODEL, settings=RunnerSettings(num_blocks=64), home=home)
    try:
        results = await model.run_batch(rows)
        assert model.stats().prefill_tokens == 101 + 15 * 5
        assert model.stats().cached_tokens == 15 * 96
        assert [row["output_ids"] for row in results] == await ids_of(model, rows)
    finally:
        await model.close()


@pytest.mark.skipif(not gemma3_path().is_file(), reason="python tests/fetch_gemma3.py fetches Gemma 3 270M")
async def test_gemma_3_gives_its_golden_ids(home: OneAdapter) -> None:
    model = await pageloom.load(gemma3_path(), settings=RunnerSettings(num_blocks=64), home=home)
    try:
        rows = [{"prompt": case["prompt"], "raw": True, "max_tokens": len(case["output_ids"])} for case in GEMMA_CASES]
        for row, case in zip(await model.run_batch(rows), GEMMA_CASES, strict=True):
            sure = sum(1 for _ in takewhile(lambda margin: margin > SAFE_MARGIN, case["margins"]))
            assert row["prompt_ids"] == case["prompt_ids"]
            assert row["output_ids"][:sure] == case["output_ids"][:sure]
    finally:
        await model.close()
