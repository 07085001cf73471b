"""Decode over int8 and int4 caches in whole numbers (AVX-512 VNNI): as exact as in float32, whatever Q is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu.kernel_oracle import attend
from tests.cpu.kernel_setup import Setup, build

pageloom_cpu = pytest.importorskip("pageloom_cpu", reason="the compiled kernels are not built; see py/pageloom-cpu")

pytestmark = pytest.mark.skipif(
    "avx512_vnni" not in pageloom_cpu.levels(), reason=f"{pageloom_cpu.unavailable_levels().get('avx512_vnni')}"
)


def errors(setup: Setup, outlier: float) -> tuple[float, float]:
    """The largest errors against float64 on avx512_vnni and on avx512, one channel of Q `outlier` times as large."""
    found = []
    for level in ("avx512_vnni", "avx512"):
        built = build(setup, np.random.default_rng(3))
        built.call.query[..., 5] *= outlier
        pageloom_cpu.Attention(pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level)()
        found.append(float(np.abs(built.output - attend(built.call).output).max()))
    return found[0], found[1]


@pytest.mark.parametrize("storage", ["int8", "int4"])
@pytest.mark.parametrize("heads", [(8, 1), (4, 2), (3, 3), (6, 2)])
@pytest.mark.parametrize("outlier", [1.0, 30.0, 1e4])
def test_whole_numbers_lose_no_more_than_twice_what_float32_does(storage: Any, heads: Any, outlier: float) -> None:
    setup = Setup(
        counts=(1, 1), totals=(301, 77), heads=heads[0], kv_heads=heads[1], head_size=128, key=storage, value=storage
    )
    whole, floats = errors(setup, outlier)
    assert whole <= 2 * floats + 1e-7


@pytest.mark.parametrize("storage", ["int8", "int4"])
@pytest.mark.parametrize("head_size", [64, 80, 130, 256, 1000])
def test_heads_of_any_size_are_multiplied_to_their_last_channel(storage: Any, head_size: int) -> None:
    whole, floats = errors(Setup(counts=(1,), totals=(133,), head_size=head_size, key=storage, value=storage), 1.0)
    assert whole <= 2 * floats + 1e-7


@pytest.mark.parametrize("storage", ["int8", "int4"])
@pytest.mark.parametrize("value", [0.0, 1e-38, 1e-20, 3e37])
def test_queries_that_are_tiny_or_huge_give_numbers(storage: Any, value: float) -> None:
    setup = Setup(counts=(1,), totals=(70,), head_size=128, key=storage, value=storage)
    results = []
    for level in ("avx512_vnni", "scalar"):
        built = build(setup, np.random.default_rng(4))
        built.call.query[:] = np.sign(built.call.query) * np.float32(value)
        pageloom_cpu.Attention(pageloom_cpu.Sequences(**built.sequences), **built.arguments, level=level)()
        results.append(built.output)
    assert np.isfinite(results[0]).all()
    assert np.abs(results[0] - results[1]).max() < 1e-5
