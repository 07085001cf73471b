"""A language model on the CPU: the reference's logits on every instruction set; the same answers alone, in a crowd,
preempted, on dirty pages and beside a shared prefix; the golden ids of real models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from kernels_kit import LEVELS, needs_kernels

import pageloom
from pageloom.engine.batch import LogitAdjustment, StepBatch
from pageloom.engine.config import EngineConfig
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.errors import BadModelFile, CapacityExceeded, DeviceLost, InvalidArgument, NotSupported
from pageloom.language_model import LanguageModel
from pageloom.model.decoder import load_model_description
from pageloom.model.source import FileSource
from tests.constrained_rows import check_constrained_rows
from tests.fetch_gemma3 import gemma3_path
from tests.golden_batch import CASES, MODEL, SAFE_MARGIN, check_answers, check_refusals, check_summary, run_golden
from tests.reference_decoder import GgufWeights, ReferenceDecoder
from tests.tiny_model import write_tiny_model

pytestmark = [needs_kernels, pytest.mark.asyncio(loop_scope="module")]

Rows = list[dict[str, Any]]
SETTINGS = RunnerSettings(num_blocks=128, max_tokens=32, max_sequences=16, max_candidates=8)
LENGTHS = (1, 2, 15, 16, 17, 31, 33, 5, 8, 40, 3, 12, 19, 64, 7, 30)
GEMMA_CASES = json.loads(Path(__file__).parents[1].joinpath("golden", "gemma3_greedy.json").read_text())["cases"]
SHORT = 16
"""Tokens of a golden answer that the everyday suite compares."""


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(tiny_path: Path) -> AsyncIterator[LanguageModel]:
    """A model without prefix sharing, so that every test computes all of its prompts."""
    model = await pageloom.load(tiny_path, backend="cpu", settings=SETTINGS, engine=EngineConfig(share_prefixes=False))
    yield model
    await model.close()


def crowd(**sampling: object) -> Rows:
    return [
        {"prompt_ids": list(range(3, 3 + length)), "max_tokens": 12, "ignore_eos": True, **sampling}
        for length in LENGTHS
    ]


async def ids_of(model: LanguageModel, rows: Rows) -> list[Any]:
    return [row["output_ids"] for row in await model.run_batch(rows)]


def step_of(chunks: list[list[int]], past: list[int], blocks: list[list[int]], **rest: Any) -> StepBatch:
    """A step with the tokens `chunks` of each sequence, and a row of logits for every one of them."""
    ids = tuple(token for chunk in chunks for token in chunk)
    ends = np.cumsum([0, *map(len, chunks)]).tolist()
    return StepBatch(
        input_ids=ids,
        feed_rows=rest.pop("feed_rows", (-1,) * len(ids)),
        cumulative_sequence_length=tuple(ends),
        past_seqlens=tuple(past),
        block_table=tuple(map(tuple, blocks)),
        logits_rows=tuple(range(len(ids))),
        **rest,
    )


@pytest.mark.parametrize("level", LEVELS)
async def test_every_instruction_set_gives_the_logits_of_the_reference(tiny_path: Path, level: str) -> None:
    from pageloom.backends.cpu.model.decoder_plan import DecoderPlan  # noqa: PLC0415 - need the kernels
    from pageloom.backends.cpu.model.load import choose_limits  # noqa: PLC0415
    from pageloom.backends.cpu.model.runner import CpuRunner  # noqa: PLC0415
    from pageloom.backends.cpu.model.weights import load_decoder_weights  # noqa: PLC0415

    with FileSource(tiny_path) as source:
        description = await load_model_description(source)
        weights = await load_decoder_weights(source, description, level)
    decoder = description.decoder
    limits = choose_limits(decoder, replace(SETTINGS, max_sequences=32, max_candidates=decoder.vocab_size))
    runner = CpuRunner(DecoderPlan(decoder, weights, limits, level), limits)
    prompts = [list(range(3, 16)), [9], list(range(100, 118))]
    batch = step_of(prompts, [0, 0, 0], [[5], [0], [7, 2]], num_candidates=decoder.vocab_size)
    rows = iter(await runner.result(runner.submit(batch)))
    runner.close()
    reference = ReferenceDecoder(decoder, GgufWeights(tiny_path, np.float64))
    for prompt in prompts:
        for expected in reference.run(prompt, list(range(len(prompt)))):
            row = next(rows)
            found = np.empty(decoder.vocab_size)
            found[list(row.token_ids)] = row.logits
            # K and V are kept in 11 bits: what is between the layers is off by about 2^-11 of its size.
            assert np.abs(found - expected).max() < 2.0**-8 * np.abs(expected).max()
            assert abs(row.logsumexp - np.log(np.exp(expected).sum())) < 2.0**-8 * np.abs(expected).max()


async def test_a_step_feeds_on_the_candidates_of_the_last_one(tiny: LanguageModel) -> None:
    runner = tiny.runner
    first = runner.submit(step_of([[3, 4, 5]], [0], [[1]]))
    fed = runner.submit(step_of([[0]], [3], [[1]], feed_rows=(2,)))
    best = (await runner.result(first))[2].token_ids[0]
    told = await runner.result(runner.submit(step_of([[best]], [3], [[1]])))
    assert await runner.result(fed) == told


async def test_adjusted_logits_choose_the_candidates(tiny: LanguageModel) -> None:
    runner = tiny.runner
    (plain,) = await runner.result(runner.submit(step_of([[7]], [0], [[1]], num_candidates=2)))
    best, second = plain.token_ids
    change = (LogitAdjustment(0, best, bias=-50.0),)
    (adjusted,) = await runner.result(runner.submit(step_of([[7]], [0], [[1]], num_candidates=2, adjustments=change)))
    assert adjusted.token_ids[0] == second
    assert adjusted.logits[0] == plain.logits[1]


async def test_masks_and_wanted_logits_are_those_of_the_rows_they_name(tiny: LanguageModel) -> None:
    await check_constrained_rows(tiny.runner)


async def test_a_prompt_gives_the_same_ids_alone_in_a_crowd_and_preempted(tiny: LanguageModel, tiny_path: Path) -> None:
    together = await ids_of(tiny, crowd())
    assert together == [(await ids_of(tiny, [row]))[0] for row in crowd()]
    small = await pageloom.load(tiny_path, backend="cpu", settings=replace(SETTINGS, num_blocks=8))
    try:
        assert together == await ids_of(small, crowd())
        assert small.stats().preemptions > 0
    finally:
        await small.close()


async def test_a_seeded_sample_is_the_same_in_a_crowd_as_alone(tiny: LanguageModel) -> None:
    sampling = {"temperature": 0.8, "top_p": 0.95, "seed": 11}
    together = await ids_of(tiny, crowd(**sampling))
    assert together == [(await ids_of(tiny, [row]))[0] for row in crowd(**sampling)]
    assert together != await ids_of(tiny, crowd())


async def test_dirty_pages_change_no_id(tiny: LanguageModel) -> None:
    before = await ids_of(tiny, crowd())
    cache = tiny.runner.plan.cache
    for dirt in (np.nan, 6e4):
        for array in (*cache.keys, *cache.values):
            array.fill(dirt)
        assert await ids_of(tiny, crowd()) == before


async def test_a_shared_prefix_is_computed_once(tiny_path: Path) -> None:
    prefix = [50 + index for index in range(100)]
    rows = [{"prompt_ids": [*prefix, 3 + index], "max_tokens": 4} for index in range(16)]
    shared = await pageloom.load(tiny_path, backend="cpu", settings=SETTINGS)
    try:
        together = await ids_of(shared, rows)
        assert shared.stats().cached_tokens == 15 * 96
        assert together == await ids_of(shared, rows)
    finally:
        await shared.close()


async def test_a_caller_that_stops_waiting_takes_no_step_back(tiny: LanguageModel) -> None:
    ticket = tiny.runner.submit(step_of([list(range(3, 19))], [0], [[1]]))
    waiting = asyncio.ensure_future(tiny.runner.result(ticket))
    await asyncio.sleep(0)
    waiting.cancel()
    assert len(await tiny.runner.result(ticket)) == 16


async def test_a_closed_runner_takes_no_step(tiny_path: Path) -> None:
    model = await pageloom.load(tiny_path, backend="cpu", settings=SETTINGS)
    await model.close()
    await model.close()
    with pytest.raises(DeviceLost, match="closed"):
        model.runner.submit(step_of([[3]], [0], [[1]]))


async def test_settings_that_cannot_be_are_refused(tiny_path: Path) -> None:
    with pytest.raises(CapacityExceeded, match="one KV block takes"):
        await pageloom.load(tiny_path, backend="cpu", settings=RunnerSettings(kv_memory=100))
    with pytest.raises(InvalidArgument, match="whole number of at least 1"):
        await pageloom.load(tiny_path, backend="cpu", settings=RunnerSettings(block_size=0))
    with pytest.raises(InvalidArgument, match="kind of WebGPU adapter"):
        await pageloom.load(tiny_path, backend="cpu", settings=RunnerSettings(prefer="gpu"))
    with pytest.raises(NotSupported, match="a KV cache of float32 is not supported by models on the CPU"):
        await pageloom.load(tiny_path, backend="cpu", settings=RunnerSettings(kv_dtype="float32"))
    with pytest.raises(InvalidArgument, match="webgpu, cpu"):
        await pageloom.load(tiny_path, backend="tpu")


async def test_weights_that_are_not_finite_are_refused(tiny_path: Path, tmp_path: Path) -> None:
    with FileSource(tiny_path) as source:
        tensors = (await load_model_description(source)).gguf.tensors
    for name in ("blk.0.attn_q.weight", "output_norm.weight"):
        data = bytearray(tiny_path.read_bytes())
        data[tensors[name].offset : tensors[name].offset + 4] = b"\xff\xff\xff\xff"
        path = tmp_path / "damaged.gguf"
        path.write_bytes(data)
        with pytest.raises(BadModelFile, match=f"{name} holds a number that is not finite"):
            await pageloom.load(path, backend="cpu")


async def test_explain_says_what_runs_and_why_nothing_faster(tiny: LanguageModel) -> None:
    told = tiny.explain()
    assert told["kernels"]["level"] == LEVELS[-1]
    assert told["kv_cache"] == {"num_blocks": 128, "block_size": 16, "dtype": "f16", "bytes": 2**19}
    assert LEVELS[-1] in tiny.device_name
    assert all(told["kernels"][key] for key in told["kernels"] if key.startswith("not "))


@pytest.mark.parametrize("count", [SHORT, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
async def test_golden_ids(name: str, count: int) -> None:
    path, cases = (MODEL, CASES) if name == "smollm2" else (gemma3_path(), GEMMA_CASES)
    if not path.is_file():
        pytest.skip("python tests/fetch_gemma3.py fetches Gemma 3 270M")
    model = await pageloom.load(path, backend="cpu", settings=RunnerSettings(num_blocks=64))
    try:
        wanted = [case["output_ids"][:count] for case in cases]
        rows = [
            {"prompt": case["prompt"], "raw": True, "max_tokens": len(ids)}
            for case, ids in zip(cases, wanted, strict=True)
        ]
        for row, case, ids in zip(await model.run_batch(rows), cases, wanted, strict=True):
            sure = sum(1 for _ in takewhile(lambda margin: margin > SAFE_MARGIN, case["margins"][: len(ids)]))
            assert row["prompt_ids"] == case["prompt_ids"]
            assert row["output_ids"][:sure] == ids[:sure]
    finally:
        await model.close()


async def test_smollm2_gives_the_same_ids_alone_in_a_crowd_and_preempted() -> None:
    golden = [{"prompt_ids": case["prompt_ids"]} for case in CASES]
    others = [{"prompt": f"{'Please ' * index}name {index} animals."} for index in range(13)]
    rows = [{**row, "max_tokens": 8} for row in (*golden, *others)]
    roomy = await pageloom.load(MODEL, backend="cpu", engine=EngineConfig(share_prefixes=False))
    cramped = await pageloom.load(MODEL, backend="cpu", settings=RunnerSettings(num_blocks=16))
    try:
        together = await ids_of(roomy, rows)
        assert together == [(await ids_of(roomy, [row]))[0] for row in rows]
        assert together == await ids_of(cramped, rows)
        assert cramped.stats().preemptions > 0
    finally:
        await roomy.close()
        await cramped.close()


async def test_the_batch_command_gives_golden_answers_and_error_rows(tmp_path: Path) -> None:
    ran = run_golden(tmp_path, SHORT, "batch", "--backend", "cpu")
    check_answers(ran)
    check_refusals(ran)
    check_summary(ran)


async def test_a_chosen_context_is_kept_though_pages_hold_more(tiny_path: Path) -> None:
    model = await pageloom.load(tiny_path, backend="cpu", settings=replace(SETTINGS, context_length=20))
    try:
        assert model.context_length == 20
        (row,) = await model.run_batch([{"prompt_ids": [3, 4, 5], "max_tokens": 40, "ignore_eos": True}])
        assert len(row["output_ids"]) == 17
    finally:
        await model.close()
