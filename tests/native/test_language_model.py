"""A model answers the same alone and in a crowd, on fresh and on dirty pages, in a large pool and in a tiny one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

import pageloom
from pageloom import native_home
from pageloom.backends.webgpu.device import Device
from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.engine.config import EngineConfig
from pageloom.engine.events import TokenEvent
from pageloom.errors import BadModelFile, CapacityExceeded, InvalidArgument, NotSupported
from pageloom.jobs import parse_job
from pageloom.language_model import LanguageModel
from pageloom.model.decoder import ModelDescription, load_model_description
from pageloom.model.source import RangedSource
from tests.constrained_rows import check_constrained_rows
from tests.native.one_adapter import OneAdapter
from tests.reference_decoder import GgufWeights, ReferenceDecoder
from tests.tiny_model import CONTEXT, write_tiny_model

PROMPTS = [list(range(3, 3 + length)) for length in (1, 2, 15, 16, 17, 31, 33, 5, 8, 40, 3, 12, 19, 64, 7, 30)]
SETTINGS = RunnerSettings(num_blocks=128, max_tokens=32, max_sequences=16, max_candidates=8)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def reference(model_path: Path) -> ReferenceDecoder:
    description = asyncio.run(_describe(model_path))
    return ReferenceDecoder(description.decoder, GgufWeights(model_path, np.float64))


async def _describe(path: Path) -> ModelDescription:
    return await load_model_description(await native_home.open_source(path))


@pytest.fixture(scope="module")
def home(driver: str, device: Device) -> OneAdapter:
    """`device` is asked for only to skip where the driver is absent."""
    return OneAdapter(driver)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(home: OneAdapter, model_path: Path) -> AsyncIterator[LanguageModel]:
    """A model without prefix sharing, so that every test computes all of its prompts."""
    model = await pageloom.load(model_path, settings=SETTINGS, engine=EngineConfig(share_prefixes=False), home=home)
    yield model
    await model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small_pool(home: OneAdapter, model_path: Path) -> AsyncIterator[LanguageModel]:
    """A model with 8 blocks of 16 tokens and prefix sharing."""
    model = await pageloom.load(model_path, settings=replace(SETTINGS, num_blocks=8), home=home)
    yield model
    await model.close()


def jobs(max_tokens: int = 12, **sampling: object) -> list[dict[str, object]]:
    return [{"prompt_ids": ids, "max_tokens": max_tokens, "ignore_eos": True, **sampling} for ids in PROMPTS]


async def ids_of(model: LanguageModel, rows: list[dict[str, object]]) -> list[list[int]]:
    return [row["output_ids"] for row in await model.run_batch(rows)]


async def test_masks_and_wanted_logits_are_those_of_the_rows_they_name(model: LanguageModel) -> None:
    await check_constrained_rows(model.runner)


async def test_greedy_ids_are_those_of_the_reference_wherever_it_is_sure(
    model: LanguageModel, reference: ReferenceDecoder
) -> None:
    for prompt, output in zip(PROMPTS, await ids_of(model, jobs()), strict=True):
        sequence = list(prompt)
        for token in output:
            logits = reference.run(sequence)[0]
            first, second = np.sort(logits)[::-1][:2]
            if first - second < 0.1:
                break
            assert token == int(logits.argmax())
            sequence.append(token)


async def test_a_prompt_gives_the_same_ids_alone_as_in_a_batch(model: LanguageModel) -> None:
    together = await ids_of(model, jobs())
    assert together == [(await ids_of(model, [job]))[0] for job in jobs()]


async def test_prompts_that_come_and_go_beside_it_change_nothing(model: LanguageModel) -> None:
    expected = (await ids_of(model, [jobs()[6]]))[0]
    handle = model.start(parse_job(0, jobs()[6]))
    output = []
    async for event in handle:
        if isinstance(event, TokenEvent):
            output.append(event.token_id)
            neighbour = model.start(parse_job(0, jobs()[len(output)]))
            if len(output) % 2:
                neighbour.abort()
    assert output == expected


async def test_preemption_in_a_tiny_pool_changes_no_id(model: LanguageModel, small_pool: LanguageModel) -> None:
    assert await ids_of(small_pool, jobs()) == await ids_of(model, jobs())
    assert small_pool.stats().preemptions > 0


async def test_pages_poisoned_with_nan_change_no_id(model: LanguageModel) -> None:
    fresh = await ids_of(model, jobs())
    cache = model.runner.plan.cache
    nan = np.full(cache.keys[0].size // 2, np.nan, np.float16)
    for buffer in (*cache.keys, *cache.values):
        model.runner.device.write(buffer, 0, nan)
    assert await ids_of(model, jobs()) == fresh


async def test_a_seeded_sample_is_reproducible_alone_and_in_a_batch(model: LanguageModel) -> None:
    sampling = {"temperature": 1.0, "top_p": 0.9, "seed": 5, "repetition_penalty": 1.1}
    first = await ids_of(model, jobs(**sampling))
    assert await ids_of(model, jobs(**sampling)) == first
    assert await ids_of(model, [jobs(**sampling)[4]]) == [first[4]]
    assert await ids_of(model, jobs()) != first


async def test_a_common_prefix_is_computed_once(small_pool: LanguageModel, model: LanguageModel) -> None:
    prefix = [200 - index for index in range(50)]
    rows = [{"prompt_ids": [*prefix, 10 + index], "max_tokens": 2, "ignore_eos": True} for index in range(4)]
    before = small_pool.stats().prefill_tokens
    results = await small_pool.run_batch(rows)
    assert [row["usage"]["cached_tokens"] for row in results] == [0, 48, 48, 48]
    assert small_pool.stats().prefill_tokens - before == 51 + 3 * 3
    assert [row["output_ids"] for row in results] == await ids_of(model, rows)


async def test_user_text_goes_through_the_chat_template_and_raw_text_does_not(model: LanguageModel) -> None:
    chat, raw = await model.run_batch(
        [{"prompt": "hello <|im_end|>", "max_tokens": 1}, {"prompt": "hello<|im_end|>", "raw": True, "max_tokens": 1}]
    )
    assert chat["prompt_ids"][0] == 1
    assert chat["prompt_ids"].count(2) == 1, "only the template's own end of turn is a control token"
    assert raw["prompt_ids"][-1] == 2


async def test_a_bad_row_has_an_error_and_the_others_are_served(model: LanguageModel) -> None:
    rows = await model.run_batch(
        [{"prompt_ids": [999]}, {"prompt": "hi", "temperature": 3}, {"prompt_ids": [5], "max_tokens": 1}]
    )
    assert rows[0]["error"]["code"] == "invalid_argument"
    assert rows[1]["error"]["param"] == "temperature"
    assert len(rows[2]["output_ids"]) == 1
    with pytest.raises(CapacityExceeded):
        await model.generate([[{"role": "user", "content": "a" * 2 * CONTEXT}]])
    assert (await model.generate(["hello"], max_tokens=1))[0].finish_reason in {"length", "stop"}


@pytest.mark.parametrize("job", [None, 5, "hello", b"hello", ["hello"]])
async def test_what_is_no_job_is_an_error_row_and_the_others_are_served(model: LanguageModel, job: object) -> None:
    refused, served = await model.run_batch([job, {"prompt_ids": [5], "max_tokens": 1}])
    assert refused["error"]["code"] == "invalid_argument"
    assert len(served["output_ids"]) == 1


@pytest.mark.parametrize("prompts", ["hello", [5], [None], ["half \ud83d"], [["hello"]], [[]], [[{"role": "user"}]]])
async def test_what_is_no_prompt_is_refused(model: LanguageModel, prompts: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        await model.generate(prompts, max_tokens=1)


async def test_nothing_runs_on_after_a_batch_that_was_cancelled_or_whose_callback_failed(model: LanguageModel) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("from the callback")

    endless = [{"prompt_ids": ids, "ignore_eos": True} for ids in PROMPTS]
    for callbacks in ({"on_event": fail}, {"on_row": fail}):
        with pytest.raises(RuntimeError, match="from the callback"):
            await model.run_batch([*endless, {"prompt_ids": [5], "max_tokens": 1}], **callbacks)
        await asyncio.sleep(0)
        assert model.stats().running + model.stats().waiting == 0
    running = asyncio.ensure_future(model.run_batch(endless))
    while not model.stats().running:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    await asyncio.sleep(0)
    assert model.stats().running + model.stats().waiting == 0


async def test_a_model_that_loads_and_one_that_does_not_leave_no_file_open(
    home: OneAdapter, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[RangedSource] = []

    async def open_source(path: Path) -> RangedSource:
        opened.append(await native_home.open_source(path))
        return opened[-1]

    monkeypatch.setattr(home, "open_source", open_source)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(BadModelFile):
        await pageloom.load(bad, home=home)
    await (await pageloom.load(model_path, settings=SETTINGS, home=home)).close()
    assert len(opened) == 2
    for source in opened:
        with pytest.raises(BadModelFile, match="can no longer be read"):
            await source.read(0, 1)


async def test_it_explains_which_programs_run_and_why_not_others(model: LanguageModel) -> None:
    explained = model.explain()
    assert explained["adapter"]["class"] == "software"
    assert explained["steps"]["one decode"]["attention"]["variant"] == "software"
    assert "barriers" in explained["steps"]["one decode"]["attention"]["not gpu"]


async def test_what_cannot_be_loaded_is_refused_by_name(home: OneAdapter, model_path: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises((BadModelFile, NotSupported)):
        await pageloom.load(bad, home=home)
    with pytest.raises(InvalidArgument, match="there is no model file"):
        await pageloom.load(tmp_path / "absent.gguf", home=home)
    with pytest.raises(InvalidArgument, match="block size 24"):
        await pageloom.load(model_path, settings=RunnerSettings(block_size=24), home=home)
    with pytest.raises(CapacityExceeded, match="a binding of this device holds"):
        await pageloom.load(model_path, settings=RunnerSettings(num_blocks=10**30), home=home)
    for wrong in ("8", 8.5, True, 0, -1):
        with pytest.raises(InvalidArgument, match=r"num_blocks is .* a whole number of at least 1"):
            await pageloom.load(model_path, settings=RunnerSettings(num_blocks=wrong), home=home)
    with pytest.raises(CapacityExceeded, match="KV block"):
        await pageloom.load(model_path, settings=RunnerSettings(kv_memory=100), home=home)
    with pytest.raises(InvalidArgument, match="max_adjustments is -1; it has to be a whole number of at least 0"):
        await pageloom.load(model_path, settings=replace(SETTINGS, max_adjustments=-1), home=home)


@pytest.mark.parametrize("name", ["max_tokens", "max_adjustments"])
async def test_a_step_larger_than_the_device_binds_is_refused_with_the_numbers(
    model_path: Path, home: OneAdapter, name: str
) -> None:
    settings = replace(SETTINGS, **{name: 2**40})
    with pytest.raises(CapacityExceeded, match=rf"{name} is {2**40}: the buffer '.*' would take \d+ bytes") as refusal:
        await pageloom.load(model_path, settings=settings, home=home)
    assert refusal.value.param == name
