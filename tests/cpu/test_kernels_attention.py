"""The compiled attention kernels, on every level that this CPU has and along every path, against numpy float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.cpu.kernel_oracle import attend
from tests.cpu.kernel_setup import Setup, build, tolerance

pageloom_cpu = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not built; see py/pageloom-cpu")

LEVELS = pageloom_cpu.levels()
PATHS = ("naive", "flash", "flash_decoding")


def sinks(heads: int) -> Any:
    return np.linspace(-2, 3, heads, dtype=np.float32)


def bias(*shape: int, dtype: Any = np.float32) -> Any:
    values = np.random.default_rng(9).normal(0, 1, shape)
    if dtype == np.bool_:
        return values > -0.5
    values[values > 1.5] = -np.inf
    return values.astype(dtype)


SETUPS = {
    "decode": Setup(),
    "one-key": Setup(totals=(1,)),
    "long-decode": Setup(totals=(1043,)),
    "multi-head": Setup(heads=3, kv_heads=3),
    "group-of-7": Setup(heads=7, kv_heads=1, totals=(150,)),
    "group-of-20": Setup(heads=20, kv_heads=1, totals=(150,)),
    "f32": Setup(key="f32", value="f32", totals=(300,)),
    "f16": Setup(key="f16", value="f16", activations="f16"),
    "int4": Setup(key="int4", value="int4", totals=(129,)),
    "int4-per-channel": Setup(key="int4", value="int4", per_channel=True),
    "k-int4-v-f16": Setup(key="int4", value="f16"),
    "k-f32-v-int8-per-channel": Setup(key="f32", value="int8", per_channel=True),
    "odd-head": Setup(head_size=37, key="int4", value="int4", per_channel=True),
    "odd-heads-differ": Setup(head_size=24, v_head_size=41, key="f32", value="int4"),
    "head-80": Setup(head_size=80, counts=(3,)),
    "head-256": Setup(head_size=256, counts=(2,)),
    "prefill": Setup(counts=(61,), totals=(61,), head_size=128),
    "prefill-f32": Setup(counts=(150,), totals=(150,), key="f32", value="f32", heads=2, kv_heads=1),
    "prefill-int4": Setup(counts=(45,), totals=(77,), key="int4", value="int4", per_channel=True),
    "prefill-odd-head": Setup(counts=(33,), totals=(40,), head_size=19, key="int4", value="f32", heads=6),
    "chunk": Setup(counts=(20,), totals=(333,), key="f16", value="int8"),
    "ragged": Setup(counts=(5, 0, 1, 30), totals=(5, 40, 17, 64), flat=True),
    "ragged-padded": Setup(counts=(5, 0, 1, 30), totals=(5, 40, 17, 64)),
    "bsnh": Setup(layout="bsnh", counts=(9, 2), totals=(30, 200), key="f32", value="f32"),
    "paged": Setup(layout="paged", totals=(100, 33), counts=(1, 1), flat=True),
    "paged-f32-ragged": Setup(
        layout="paged", counts=(17, 0, 1), totals=(50, 16, 97), flat=True, key="f32", value="f32", block_size=32
    ),
    "paged-unmapped": Setup(
        layout="paged", counts=(3, 40), totals=(70, 90), flat=True, key="f32", value="f32",
        unmapped=((0, 1), (1, 0), (1, 3)),
    ),
    "paged-unmapped-int4": Setup(
        layout="paged", counts=(1,), totals=(70,), flat=True, key="int4", value="int4", unmapped=((0, 0), (0, 2))
    ),
    "paged-unmapped-softcap": Setup(
        layout="paged", counts=(1, 40), totals=(70, 90), flat=True, key="f32", value="f32",
        unmapped=((0, 0), (0, 2), (1, 3)), options={"softcap": 2.0},
    ),
    "paged-unmapped-softcap-int8": Setup(
        layout="paged", totals=(300,), flat=True, unmapped=((0, 1), (0, 17)), options={"softcap": 2.0}
    ),
    "latent": Setup(
        layout="paged", latent=True, kv_heads=1, heads=16, head_size=96, v_head_size=64, totals=(80,), flat=True
    ),
    "window": Setup(counts=(1, 33), totals=(200, 150), flat=True, options={"window": 7}),
    "window-1": Setup(counts=(40,), totals=(40,), options={"window": 1}),
    "not-causal": Setup(counts=(18,), totals=(50,), options={"causal": False}),
    "not-causal-window": Setup(counts=(18,), totals=(50,), options={"causal": False, "window": 4}),
    "softcap": Setup(counts=(1, 20), totals=(99, 50), flat=True, query_scale=30.0, options={"softcap": 20.0}),
    "sinks": Setup(counts=(1, 20), totals=(99, 50), flat=True, options={"sinks": sinks(4)}),
    "sinks-alone": Setup(counts=(2,), totals=(0,), options={"sinks": sinks(4)}),
    "bias": Setup(counts=(3, 20), totals=(60, 60), options={"bias": bias(2, 4, 20, 70)}),
    "bias-decode": Setup(totals=(90,), options={"bias": bias(1, 1, 1, 90)}),
    "bias-head-broadcast": Setup(counts=(9, 9, 9), totals=(9, 20, 30), options={"bias": bias(3, 1, 9, 30)}),
    "bias-batch-broadcast": Setup(counts=(9, 9, 9), totals=(9, 20, 30), options={"bias": bias(1, 4, 9, 30)}),
    "bias-short": Setup(counts=(20,), totals=(60,), options={"bias": bias(1, 1, 20, 50), "causal": False}),
    "mask": Setup(counts=(20,), totals=(60,), options={"bias": bias(1, 4, 20, 60, dtype=np.bool_), "causal": False}),
    "bias-f16": Setup(
        counts=(20,), totals=(60,), activations="f16", options={"bias": bias(1, 4, 20, 60, dtype=np.float16)}
    ),
    "before-all-keys": Setup(counts=(30,), totals=(12,), key="f32", value="f32"),
    "top-left": Setup(counts=(30,), totals=(12,), options={"first_position": 0}),
    "everything": Setup(
        counts=(2, 21), totals=(55, 80), key="int4", value="int8", per_channel=True,
        options={"softcap": 5.0, "sinks": sinks(4), "window": 30, "bias": bias(2, 1, 21, 80)},
    ),
}  # fmt: skip


def run(setup: Setup, level: str, path: str | None, seed: int = 3) -> None:
    built = build(setup, np.random.default_rng(seed))
    attention = pageloom_cpu.Attention(
        pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level, path=path
    )
    if path:
        plan = attention.plan()
        assert plan["level"] == level
        assert plan["path"] == (path if path != "flash_decoding" or plan["splits"] > 1 else "flash")
    attention()
    expected = attend(built.call)
    tokens = [row.token for row in built.call.rows]
    size = np.abs(expected.masked[np.isfinite(expected.masked)]).max(initial=0.0)
    bound = tolerance(setup, expected.mass, min(float(size), 60.0))
    error = np.abs(built.output.astype(np.float64) - expected.output)
    assert not np.isnan(built.output).any()
    assert (error[tokens] <= bound[tokens]).all(), (error[tokens] / bound[tokens]).max()
    idle = np.setdiff1d(np.arange(len(built.output)), tokens)
    assert not built.output[idle].any()
    finite = np.isfinite(expected.log_sum_exp)
    assert (np.isneginf(built.log_sum_exp) == ~finite).all()
    lse_error = np.abs(built.log_sum_exp[finite] - expected.log_sum_exp[finite])
    assert (lse_error <= 1e-5 * (1 + np.abs(expected.log_sum_exp[finite]))).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SETUPS)
def test_every_path_of_every_level_equals_float64(name: str, level: str, path: str) -> None:
    run(SETUPS[name], level, path)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("total", [1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 257])
def test_lengths_around_the_edges_of_blocks(level: str, total: int) -> None:
    for count in {1, min(5, total), total}:
        run(Setup(counts=(count,), totals=(total,), key="f32", value="f32", head_size=16, heads=2), level, None)
        run(Setup(counts=(count,), totals=(total,), layout="paged", flat=True, head_size=32), level, None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("total", [5, 77])
@pytest.mark.parametrize("softcap", [0.0, 20.0])
def test_what_sees_a_nan_is_nan_and_nothing_else_is(level: str, path: str, total: int, softcap: float) -> None:
    for count in (1, total // 2):
        for poisoned in ("query", "key_cache"):
            options: dict[str, Any] = {"softcap": softcap, "bias": bias(1, 1, 1, total)}
            setup = Setup(counts=(count,), totals=(total,), key="f32", value="f32", options=options)
            built = build(setup, np.random.default_rng(7))
            built.arguments["bias"][..., total - count - 1] = 0
            nan = np.zeros((count, setup.heads), np.bool_)
            if poisoned == "query":
                built.arguments["query"][0, -1, 2, 9] = np.nan
                nan[-1, 2] = True
            else:
                built.arguments["key_cache"][0, 1, total - count - 1, 9] = np.nan
                nan[:, 2:] = True
            attention = pageloom_cpu.Attention(
                pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level, path=path
            )
            attention()
            assert (np.isnan(built.output) == nan[..., None]).all()
            assert (np.isnan(built.log_sum_exp) == nan).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("total", [15, 16, 17, 33, 127, 129, 145, 300])
def test_long_tokens_are_read_in_pieces_of_a_block(level: str, total: int) -> None:
    wide = Setup(
        layout="paged", totals=(total,), flat=True, key="f32", value="f32", heads=32, kv_heads=16, head_size=128
    )
    middle = total // 32
    for setup in (
        wide,
        replace(wide, unmapped=((0, middle),)),
        replace(wide, flat=False, options={"bias": bias(1, 32, 1, total - 3)}),
        replace(wide, options={"window": 21}, key="int4", value="int8"),
    ):
        run(setup, level, "flash")


@pytest.mark.parametrize("channels", [64, 100, 128])
def test_an_8_bit_query_is_off_by_no_more_than_it_says(channels: int) -> None:
    """Q is off by 1 / 254 of its largest channel: a logit by that times the sum of |k|, a weight by twice that."""
    setup = Setup(totals=(150,), head_size=channels)
    built = build(setup, np.random.default_rng(12))
    sequences = pageloom_cpu.Sequences(**built.sequences)
    try:
        attention = pageloom_cpu.Attention(sequences, **built.arguments, approximation="int8_query")
    except ValueError as error:
        pytest.skip(str(error))
    assert attention.plan()["approximation"] == "int8_query"
    attention()
    expected = attend(built.call)
    logit = np.abs(built.call.query).max() / 254 * np.abs(built.call.keys).sum(axis=-1).max() * built.call.scale
    error = np.abs(built.output - expected.output)
    assert (error <= expected.mass[..., None] * np.expm1(2 * logit) + 1e-6).all()
    assert error.max() > 1e-5, "the option is expected to give up accuracy for speed"
