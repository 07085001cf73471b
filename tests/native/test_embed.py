"""Embedding rows and selected rows: copies, so compared exactly or within the rounding of one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from weights_kit import BLOCKS, Bench, as_source, dequantized, random_tensor, step_words

from pageloom.backends.webgpu.native import NativeDevice
from pageloom.backends.webgpu.program_cache import ProgramCache
from pageloom.backends.webgpu.programs.embed import plan_embed, plan_select_rows
from pageloom.backends.webgpu.weights import load_weight
from pageloom.errors import NotSupported

SENTINEL = 7.0
CANDIDATE_WORDS = 6
SCALE = 25.298221281347036


@pytest.fixture(scope="module")
def bench(device: NativeDevice) -> Bench:
    return Bench(device, ProgramCache(device))


async def embedded(bench: Bench, tensors: list[tuple[str, np.ndarray]], ids: list[int], max_tokens: int) -> np.ndarray:
    """The embeddings of `ids`; every second token's id comes from the previous step's candidates."""
    source, infos = as_source(tensors)
    weight = await load_weight(bench.device, bench.programs, source, infos, "embedding")
    candidates = np.full((len(ids), CANDIDATE_WORDS), 2**31, np.uint32)
    candidates[:, 0] = ids[::-1]
    feed_rows = [len(ids) - 1 - token if token % 2 else -1 for token in range(len(ids))]
    token_ids = [2**30 if fed >= 0 else token for token, fed in zip(ids, feed_rows, strict=True)]
    step = bench.put(step_words(num_tokens=len(ids), TOKEN_IDS=token_ids, FEED_ROWS=feed_rows))
    shape = (max_tokens, weight.in_features)
    target = bench.put(np.full(shape, SENTINEL, np.float32))
    planned = plan_embed(
        bench.device.info,
        weight,
        target,
        step,
        bench.put(candidates),
        candidate_words=CANDIDATE_WORDS,
        scale=SCALE,
        max_tokens=max_tokens,
    )
    assert len(planned) == len(weight.shards)
    await bench.run(planned)
    result = await bench.get(target, shape)
    np.testing.assert_array_equal(result[len(ids) :], SENTINEL)
    return result[: len(ids)]


@pytest.mark.parametrize("name", BLOCKS)
async def test_every_format_gives_the_rows_of_given_and_fed_tokens(bench: Bench, name: str) -> None:
    rng = np.random.default_rng(11)
    raw = random_tensor(rng, name, 37, 256)
    ids = [36, 0, 5, 5, 17]
    result = await embedded(bench, [(name, raw)], ids, 8)
    rows = SCALE * dequantized(name, raw)[ids]
    largest = np.abs(rows).reshape(len(ids), -1, 32).max(-1, keepdims=True).repeat(32, -1).reshape(rows.shape)
    np.testing.assert_array_less(np.abs(result - rows), 2.0**-20 * largest + 1e-30)


async def test_rows_of_no_whole_chunk_touch_no_neighbour(bench: Bench) -> None:
    raw = random_tensor(np.random.default_rng(3), "F16", 9, 44)
    ids = [8, 1, 3]
    result = await embedded(bench, [("F16", raw)], ids, 4)
    np.testing.assert_allclose(result, SCALE * dequantized("F16", raw)[ids], rtol=2.0**-22)


async def test_an_embedding_of_several_shards_finds_every_row(
    limited_device: Callable[..., Awaitable[NativeDevice]],
) -> None:
    device = await limited_device({"maxStorageBufferBindingSize": 16384, "maxBufferSize": 16384})
    raw = random_tensor(np.random.default_rng(2), "Q8_0", 301, 128)
    ids = [300, 0, 127, 128, 129, 255, 256]
    result = await embedded(Bench(device, ProgramCache(device)), [("Q8_0", raw)], ids, 8)
    np.testing.assert_allclose(result, SCALE * dequantized("Q8_0", raw)[ids], rtol=2.0**-20)


async def test_selected_rows_are_copies(bench: Bench) -> None:
    values = np.random.default_rng(1).standard_normal((9, 68)).astype(np.float32)
    target = bench.put(np.full((4, 68), SENTINEL, np.float32))
    step = bench.put(step_words(num_tokens=9, LOGITS_ROWS=[0, 5, 8]))
    await bench.run(plan_select_rows(bench.put(values), target, step, width=68, max_rows=4))
    expected = np.concatenate([values[[0, 5, 8]], np.full((1, 68), SENTINEL, np.float32)])
    np.testing.assert_array_equal(await bench.get(target, (4, 68)), expected)


def test_rows_that_are_no_whole_vectors_are_refused(bench: Bench) -> None:
    buffer = bench.device.buffer(64)
    with pytest.raises(NotSupported, match="multiple of 4"):
        plan_select_rows(buffer, buffer, buffer, width=6, max_rows=1)
