"""A language model on CUDA, or in Triton's interpreter: the reference's logits in prompts and decodes, candidates,
crowds, dirty pages; on a GPU also the golden ids of real models, and the same answers alone and among 32."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")
pytest.importorskip("triton", reason="Triton is not installed: pip install 'pageloom[cuda]'")
pytest.importorskip("gguf", reason="gguf is not installed: pip install 'pageloom[cuda]'")

import pageloom  # noqa: E402
from pageloom.engine.batch import LogitAdjustment, StepBatch  # noqa: E402
from pageloom.engine.config import EngineConfig  # noqa: E402
from pageloom.engine.runner_settings import RunnerSettings  # noqa: E402
from pageloom.errors import BadModelFile, CapacityExceeded, DeviceLost, InvalidArgument, NotSupported  # noqa: E402
from pageloom.language_model import LanguageModel  # noqa: E402
from pageloom.model.decoder import load_model_description  # noqa: E402
from pageloom.model.quantization import dequantize  # noqa: E402
from pageloom.model.source import FileSource  # noqa: E402
from tests.constrained_rows import check_constrained_rows  # noqa: E402
from tests.fetch_gemma3 import gemma3_path  # noqa: E402
from tests.golden_batch import CASES, MODEL, SAFE_MARGIN  # noqa: E402
from tests.reference_decoder import GgufWeights, ReferenceDecoder  # noqa: E402
from tests.tiny_model import write_tiny_model  # noqa: E402

pytestmark = pytest.mark.asyncio(loop_scope="module")

Rows = list[dict[str, Any]]
SETTINGS = RunnerSettings(num_blocks=64, max_tokens=32, max_sequences=4, max_candidates=8, context_length=64)
GEMMA_CASES = json.loads(Path(__file__).parents[1].joinpath("golden", "gemma3_greedy.json").read_text())["cases"]


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(device: Any, tiny_path: Path) -> AsyncIterator[LanguageModel]:
    """A model without prefix sharing, so that every test computes all of its prompts."""
    model = await pageloom.load(tiny_path, backend="cuda", settings=SETTINGS, engine=EngineConfig(share_prefixes=False))
    yield model
    await model.close()


def step_of(chunks: list[list[int]], past: list[int], blocks: list[list[int]], **rest: Any) -> StepBatch:
    """A step with the tokens `chunks` of each sequence, and a row of logits for the last of each."""
    ids = tuple(token for chunk in chunks for token in chunk)
    ends = np.cumsum([0, *map(len, chunks)]).tolist()
    return StepBatch(
        input_ids=ids,
        feed_rows=rest.pop("feed_rows", (-1,) * len(ids)),
        cumulative_sequence_length=tuple(ends),
        past_seqlens=tuple(past),
        block_table=tuple(map(tuple, blocks)),
        logits_rows=rest.pop("logits_rows", tuple(end - 1 for end in ends[1:])),
        **rest,
    )


async def run(model: LanguageModel, *chunks: Any, **rest: Any) -> Any:
    return await model.runner.result(model.runner.submit(step_of(*chunks, **rest)))


async def ids_of(model: LanguageModel, rows: Rows) -> list[Any]:
    return [row["output_ids"] for row in await model.run_batch(rows)]


async def test_prompts_in_pieces_and_decodes_give_the_logits_of_the_reference(
    tiny: LanguageModel, tiny_path: Path
) -> None:
    reference = ReferenceDecoder(tiny.description.decoder, GgufWeights(tiny_path, np.float64))
    first, second, third = list(range(3, 24)), [9, 90], [100]
    steps = [
        step_of([first[:5], second[:1]], [0, 0], [[5], [0]], num_candidates=8),
        step_of([first[5:20], second[1:], third], [5, 1, 0], [[5, 9], [0], [7]], num_candidates=8),
        step_of([first[20:], [12], [13]], [20, 2, 1], [[5, 9], [0], [7]], num_candidates=8),
        step_of([[14]], [3], [[0]], num_candidates=8),
    ]
    wanted = [
        [first[:5], second[:1]],
        [first[:20], second, third],
        [first, [*second, 12], [*third, 13]],
        [[*second, 12, 14]],
    ]
    for step, sequences in zip(steps, wanted, strict=True):
        rows = await tiny.runner.result(tiny.runner.submit(step))
        for row, sequence in zip(rows, sequences, strict=True):
            expected = reference.run(sequence)[0]
            # What is between the layers, and what products read, is kept in 11 bits.
            budget = 2.0**-7 * np.abs(expected).max()
            assert np.abs(np.array(row.logits) - expected[list(row.token_ids)]).max() < budget
            assert abs(row.logsumexp - np.log(np.exp(expected).sum())) < budget
            assert row.logits[0] > expected.max() - budget


async def test_the_best_of_a_row_is_the_first_of_its_candidates(tiny: LanguageModel) -> None:
    (best,) = await run(tiny, [[3, 4, 5]], [0], [[1]])
    (several,) = await run(tiny, [[3, 4, 5]], [0], [[1]], num_candidates=8)
    assert best.token_ids == several.token_ids[:1]
    assert best.logits == several.logits[:1]
    assert best.logsumexp == pytest.approx(several.logsumexp, rel=1e-6)
    assert list(several.logits) == sorted(several.logits, reverse=True)


async def test_equal_logits_have_the_lowest_id_first(device: Any) -> None:
    from pageloom.backends.cuda.model.candidates import find_best, find_candidates  # noqa: PLC0415 - need PyTorch
    from pageloom.backends.cuda.model.step_buffers import StepBuffers  # noqa: PLC0415
    from tests.fake_runner import limits  # noqa: PLC0415

    vocabulary = 9000
    step = StepBuffers(limits(vocab_size=vocabulary), device)
    step.clear()
    values = np.random.default_rng(3).integers(-40, 0, (3, vocabulary)).astype(np.float32) / 8
    values[1, [8999, 8200, 17]] = 0.0
    values[2] = -0.0
    logits = torch.from_numpy(values).to(device)
    order = np.lexsort((np.broadcast_to(np.arange(vocabulary), values.shape), -values))[:, :8]
    sums = np.log(np.exp(values.astype(np.float64)).sum(axis=1))
    for find in (lambda: find_best(logits, step.candidates, 8), lambda: find_candidates(logits, step, 8)):
        find()
        words = step.candidates[:3].cpu().numpy()
        assert words[:, 0].tolist() == order[:, 0].tolist()
        np.testing.assert_allclose(words[:, 16:].copy().view(np.float32)[:, 0], sums, rtol=1e-5)
    assert words[:, :8].tolist() == order.tolist()


async def test_a_row_of_a_product_has_the_same_bits_alone_and_among_others(device: Any) -> None:
    from pageloom.backends.cuda.model.products import gated_linear, linear, tile_of  # noqa: PLC0415 - need PyTorch

    on_gpu = device.type == "cuda"
    width, outputs, most = 80, 4096 if on_gpu else 48, 130
    rng = np.random.default_rng(5)
    x, weight, bias, residual = (
        rng.standard_normal(shape).astype(dtype)
        for shape, dtype in (
            ((most, width), np.float16),
            ((2 * outputs, width), np.float16),
            (2 * outputs, np.float32),
            ((most, 2 * outputs), np.float32),
        )
    )
    tensors = [torch.from_numpy(array).to(device) for array in (x, weight, bias, residual)]
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    gate, up = exact[:, :outputs], exact[:, outputs:]
    wanted = {
        "linear": exact + bias + residual,
        "silu": gate / (1 + np.exp(-gate)) * up,
        "gelu_tanh": 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up,
    }
    assert (tile_of(1, outputs) != tile_of(most, outputs)) == on_gpu, "there wider tiles give the same bits too"
    for name, expected in wanted.items():

        def run(rows: slice, name: str = name) -> Any:
            some, _, _, added = (tensor[rows].contiguous() for tensor in tensors)
            if name == "linear":
                return linear(some, tensors[1], torch.float32, bias=tensors[2], residual=added).cpu()
            return gated_linear(some, tensors[1], name).cpu()

        together = run(slice(None))
        np.testing.assert_allclose(together.numpy(), expected, rtol=2e-3, atol=2e-3)
        for row in (0, 63, 64, 129):
            assert torch.equal(run(slice(row, row + 1))[0], together[row])


async def test_a_step_feeds_on_the_candidates_of_the_last_one(tiny: LanguageModel) -> None:
    runner = tiny.runner
    first = runner.submit(step_of([[9, 9], [3, 4, 5]], [0, 0], [[2], [1]]))
    fed = runner.submit(step_of([[0]], [3], [[1]], feed_rows=(1,)))
    best = (await runner.result(first))[1].token_ids[0]
    told = await run(tiny, [[best]], [3], [[1]])
    assert await runner.result(fed) == told


async def test_adjusted_logits_choose_the_candidates(tiny: LanguageModel) -> None:
    (plain,) = await run(tiny, [[7]], [0], [[1]], num_candidates=2)
    best, second = plain.token_ids
    (adjusted,) = await run(tiny, [[7]], [0], [[1]], adjustments=(LogitAdjustment(0, best, bias=-50.0),))
    assert (adjusted.token_ids, adjusted.logits) == ((second,), plain.logits[1:])


async def test_masks_and_wanted_logits_are_those_of_the_rows_they_name(tiny: LanguageModel) -> None:
    await check_constrained_rows(tiny.runner)


async def test_a_crowd_on_dirty_pages_gives_each_what_it_gets_alone(tiny: LanguageModel) -> None:
    rows = [
        {"prompt_ids": list(range(3, 3 + length)), "max_tokens": 3, "temperature": heat, "seed": length}
        for length, heat in ((1, 0.0), (17, 0.8), (31, 0.0))
    ]
    alone = [(await ids_of(tiny, [row]))[0] for row in rows]
    for cache in tiny.runner.plan.caches:
        for tensor in cache:
            tensor.fill_(torch.nan)
    assert await ids_of(tiny, rows) == alone


async def test_weights_are_those_of_the_file_to_the_nearest_half(tiny: LanguageModel, tiny_path: Path) -> None:
    tensors, matrices = tiny.description.gguf.tensors, tiny.runner.plan.weights.matrices
    with FileSource(tiny_path) as source:
        for names, matrix in matrices.items():
            parts = [
                dequantize(tensors[n].format, await source.read(tensors[n].offset, tensors[n].size)) for n in names
            ]
            expected = np.concatenate([np.array(part, np.float32) for part in parts]).astype(np.float16)
            np.testing.assert_array_equal(matrix.cpu().numpy().ravel(), expected)


async def test_settings_that_cannot_be_are_refused(device: Any, tiny_path: Path) -> None:
    for settings, error, words in (
        (RunnerSettings(kv_memory=100), CapacityExceeded, "one KV block takes"),
        (RunnerSettings(block_size=24), InvalidArgument, "power of two of at least 16"),
        (RunnerSettings(prefer="gpu"), InvalidArgument, "kind of WebGPU adapter"),
        (RunnerSettings(kv_dtype="float32"), NotSupported, "a KV cache of float32 is not supported by models on CUDA"),
    ):
        with pytest.raises(error, match=words):
            await pageloom.load(tiny_path, backend="cuda", settings=settings)


async def test_weights_that_are_not_finite_are_refused(device: Any, tiny_path: Path, tmp_path: Path) -> None:
    with FileSource(tiny_path) as source:
        tensors = (await load_model_description(source)).gguf.tensors
    for name in ("blk.0.attn_q.weight", "output_norm.weight"):
        data = bytearray(tiny_path.read_bytes())
        data[tensors[name].offset : tensors[name].offset + 4] = b"\xff\xff\xff\xff"
        path = tmp_path / "damaged.gguf"
        path.write_bytes(data)
        with pytest.raises(BadModelFile, match=f"{name} holds a number that is not finite"):
            await pageloom.load(path, backend="cuda")


async def test_a_closed_runner_takes_no_step_and_holds_no_memory(device: Any, tiny_path: Path) -> None:
    model = await pageloom.load(tiny_path, backend="cuda", settings=SETTINGS)
    assert model.explain()["weights"]["bytes"] > 0
    await model.close()
    await model.close()
    with pytest.raises(DeviceLost, match="closed"):
        model.runner.submit(step_of([[3]], [0], [[1]]))
    assert not model.runner.plan.caches


async def test_replayed_graphs_give_the_bits_of_the_calls_they_captured(gpu: Any, tiny: LanguageModel) -> None:
    runner = tiny.runner
    assert set(runner.buckets()) == set(runner._graphs)
    prompt, decode = step_of([[3, 4, 5], [6]], [0, 0], [[1], [2]]), step_of([[7], [8]], [3, 1], [[1], [2]])
    replayed = [await runner.result(runner.submit(step)) for step in (prompt, decode)]
    graphs, runner._graphs = runner._graphs, {}
    try:
        assert [await runner.result(runner.submit(step)) for step in (prompt, decode)] == replayed
    finally:
        runner._graphs = graphs


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
async def test_golden_ids(gpu: Any, name: str) -> None:
    path, cases = (MODEL, CASES) if name == "smollm2" else (gemma3_path(), GEMMA_CASES)
    if not path.is_file():
        pytest.skip(f"there is no {path.name}")
    model = await pageloom.load(path, backend="cuda", settings=RunnerSettings(num_blocks=64))
    try:
        rows = [{"prompt_ids": case["prompt_ids"], "max_tokens": len(case["output_ids"])} for case in cases]
        for ids, case in zip(await ids_of(model, rows), cases, strict=True):
            sure = sum(1 for _ in takewhile(lambda margin: margin > SAFE_MARGIN, case["margins"]))
            assert ids[:sure] == case["output_ids"][:sure]
    finally:
        await model.close()


async def test_smollm2_gives_the_same_ids_alone_and_among_32_and_preempted(gpu: Any) -> None:
    if not MODEL.is_file():
        pytest.skip(f"there is no {MODEL.name}")
    rows = [{"prompt": f"{'Please ' * index}name {index} animals.", "max_tokens": 16} for index in range(32)]
    roomy = await pageloom.load(MODEL, backend="cuda", engine=EngineConfig(share_prefixes=False))
    cramped = await pageloom.load(MODEL, backend="cuda", settings=RunnerSettings(num_blocks=40))
    try:
        together = await ids_of(roomy, rows)
        assert together == [(await ids_of(roomy, [row]))[0] for row in rows]
        assert together == await ids_of(cramped, rows)
        assert cramped.stats().preemptions > 0
    finally:
        await roomy.close()
        await cramped.close()
