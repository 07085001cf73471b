"""How calls of the compiled kernels behave: lengths read anew, captured scores, threads, concurrency, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.cpu.kernel_oracle import Row, attend
from tests.cpu.kernel_setup import Setup, Storage, build

pageloom_cpu = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not built; see py/pageloom-cpu")

LEVELS = pageloom_cpu.levels()


def attention(built: Any, **options: Any) -> Any:
    return pageloom_cpu.Attention(pageloom_cpu.Sequences(**built.sequences), **(built.arguments | options))


def test_a_bound_call_reads_lengths_and_tables_anew() -> None:
    built = build(Setup(layout="paged", totals=(90,), flat=True), np.random.default_rng(0))
    call = attention(built)
    for total in (90, 17, 64):
        built.sequences["total_lengths"][0] = total
        call()
        rows = [Row(0, 0, 0, total - 1, total)]
        np.testing.assert_allclose(built.output, attend(replace(built.call, rows=rows)).output, atol=1e-5)
    built.arguments["block_table"][0, 1] = -1
    call()
    mapped = built.call.mapped
    assert mapped is not None
    mapped[0, 16:32] = False
    np.testing.assert_allclose(built.output, attend(replace(built.call, rows=rows)).output, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("stage", ["scaled", "softcapped", "masked", "probabilities"])
def test_captured_scores(level: str, stage: str) -> None:
    bias = np.random.default_rng(1).normal(0, 1, (1, 4, 6, 20)).astype(np.float32)
    bias[0, 1, 2, 5] = -np.inf
    options = {"softcap": 3.0, "bias": bias, "sinks": np.ones(4, np.float32), "window": 9}
    built = build(Setup(counts=(6,), totals=(20,), key="f32", value="f32", options=options), np.random.default_rng(2))
    captured = np.full((1, 4, 6, 20), np.nan, np.float32)
    attention(built, qk_output=captured, qk_stage=stage, qk_hidden=-np.inf, level=level)()
    expected = getattr(attend(built.call), stage)[:, :, :20].swapaxes(0, 1)[None]
    np.testing.assert_allclose(captured, expected, atol=1e-5)


def test_threads_share_a_call_and_agree_with_one() -> None:
    setup = Setup(counts=(1, 150), totals=(3000, 300), flat=True, heads=16, kv_heads=8, layout="paged")
    built = build(setup, np.random.default_rng(3))
    before = pageloom_cpu.info()["threads"]
    try:
        pageloom_cpu.set_threads(3, pin=True)
        assert pageloom_cpu.info()["threads"] == 3
        attention(built, threads=1)()
        alone = built.output.copy()
        call = attention(built)
        assert call.plan()["threads"] == 3
        for _ in range(5):
            built.output[:] = np.nan
            call()
            np.testing.assert_allclose(built.output, alone, atol=2e-6)
    finally:
        pageloom_cpu.set_threads(before)


@pytest.fixture
def threads_of_pool() -> Iterator[Callable[[int], None]]:
    before = pageloom_cpu.info()["threads"]
    yield pageloom_cpu.set_threads
    pageloom_cpu.set_threads(before)


@pytest.mark.parametrize("key", ["int8", "int4"])
def test_threads_share_heads_of_short_rows_to_the_bit(key: Storage, threads_of_pool: Callable[[int], None]) -> None:
    """As long as a thread reads two cache lines of each token: of int4, two heads."""
    setup = Setup(totals=(600,), flat=True, heads=16, kv_heads=8, head_size=128, layout="paged", key=key, value=key)
    built = build(setup, np.random.default_rng(13))
    attention(built, threads=1)()
    alone = built.output.copy()
    for threads in (2, 4):
        threads_of_pool(threads)
        call = attention(built)
        assert (call.plan()["tasks"], call.plan()["splits"]) == (threads, 1)
        built.output[:] = np.nan
        call()
        np.testing.assert_array_equal(built.output, alone)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize(
    ("setup", "units"),
    [
        (Setup(totals=(6001,), flat=True, layout="paged", kv_heads=2), 1),
        (Setup(totals=(6001,), flat=True, layout="paged", heads=12, kv_heads=6, options={"window": 5500}), 1),
        (Setup(totals=(6001,), key="f32", value="f16"), 2),
        (Setup(counts=(1, 1), totals=(700, 6001), flat=True, layout="paged", key="int4"), 2),
    ],
)
def test_long_rows_are_cut_into_large_parts_and_small_ones(
    setup: Setup, units: int, threads: int, threads_of_pool: Callable[[int], None]
) -> None:
    built = build(setup, np.random.default_rng(14))
    threads_of_pool(threads)
    call = attention(built)
    assert call.plan()["splits"] == 2 * -(-threads // units)
    call()
    np.testing.assert_allclose(built.output, attend(built.call).output, atol=2e-6)


def test_a_batch_equals_its_members_alone_bit_for_bit() -> None:
    setup = Setup(counts=(1, 9, 1), totals=(200, 77, 31), flat=True, layout="paged")
    built = build(setup, np.random.default_rng(4))
    attention(built, threads=1)()
    together = built.output.copy()
    offsets = built.sequences["query_offsets"]
    for b in range(3):
        tokens = slice(offsets[b], offsets[b + 1])
        sequences = pageloom_cpu.Sequences(
            1, setup.counts[b], query_offsets=np.array([0, setup.counts[b]], np.int32), total=setup.totals[b]
        )
        arguments = built.arguments | {
            name: built.arguments[name][tokens] for name in ("query", "output", "log_sum_exp")
        }
        arguments["block_table"] = built.arguments["block_table"][b : b + 1]
        pageloom_cpu.Attention(sequences, **arguments, threads=1)()
        np.testing.assert_array_equal(built.output[tokens], together[tokens])


def test_two_hundred_calls_at_once_are_each_right() -> None:
    setups = [Setup(counts=(1,), totals=(500,)), Setup(counts=(40,), totals=(40,), key="int4", value="f32")]
    calls = []
    for i in range(200):
        built = build(setups[i % 2], np.random.default_rng(i))
        calls.append((attention(built), built))
    with ThreadPoolExecutor(200) as executor:
        for _ in range(3):
            list(executor.map(lambda pair: pair[0](), calls))
    for _, built in calls[:20]:
        np.testing.assert_allclose(built.output, attend(built.call).output, atol=2e-5)


def test_one_call_bound_once_may_run_from_many_threads() -> None:
    built = build(Setup(totals=(700,)), np.random.default_rng(6))
    call = attention(built)
    with ThreadPoolExecutor(16) as executor:
        list(executor.map(lambda _: call(), range(200)))
    np.testing.assert_allclose(built.output, attend(built.call).output, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": np.zeros((1, 2, 4, 64), np.float32)}, r"query has shape \(1, 2, 4, 64\)"),
        ({"query": np.zeros((1, 1, 5, 64), np.float32)}, "multiple of the 2 heads of key_cache"),
        ({"output": np.zeros((1, 1, 4, 64), np.int32)}, "output must be float32 or float16"),
        ({"k_scale": None}, "k_scale is missing"),
        ({"k_scale": np.ones(3, np.float32)}, r"1 or heads \* channels = 128"),
        ({"value_cache": np.zeros((1, 2, 8, 64), np.int8)}, "must have as many rows"),
        ({"value_cache": None, "v_scale": None}, "value_cache is missing"),
        ({"scale": float("nan")}, "scale must be finite"),
        ({"softcap": -1.0}, "softcap must be"),
        ({"window": -3}, "window must be at least 0"),
        ({"sinks": np.zeros(3, np.float32)}, r"sinks has shape \(3\)"),
        ({"bias": np.zeros((1, 3, 1, 40), np.float32)}, "axis 1 must be 1 or 4"),
        ({"path": "fast"}, "path is 'fast'"),
        ({"level": "avx1024"}, "level is 'avx1024'; this build has"),
        ({"approximation": "float8"}, "approximation is 'float8'"),
        ({"threads": 0}, "threads is 0"),
        ({"qk_output": np.zeros((1, 4, 1, 40), np.float32), "path": "flash"}, "naive is the one"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(change: dict[str, Any], message: str) -> None:
    built = build(Setup(), np.random.default_rng(7))
    with pytest.raises(ValueError, match=message):
        attention(built, **change)


def test_an_array_of_another_type_is_not_copied_in_silence() -> None:
    built = build(Setup(), np.random.default_rng(8))
    with pytest.raises(ValueError, match="query must be float32 or float16"):
        attention(built, query=np.zeros((1, 1, 4, 64)))
    read_only = built.output.reshape(1, 1, 4, 64).copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        attention(built, output=read_only)
