"""Keys that are split over programs: how many splits there are, and that their parts make a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.paged.reference import paged_attention
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.geometry import MOST_SPLITS, Geometry, tile_of

HALF = CacheStorage("float16", "NONE")
GEOMETRY = Geometry("float16", 32, 8, 128, 128, 0.1, HALF, HALF, "paged", block_size=16)


@pytest.mark.parametrize("sequences", [1, 3, 8, 33, 500])
@pytest.mark.parametrize("kv_bound", [1, 64, 65, 512, 4096, 100_000])
def test_splits_fill_the_multiprocessors_and_leave_none_without_a_step(sequences: int, kv_bound: int) -> None:
    tile = tile_of(GEOMETRY, sequences=sequences, query_bound=1, kv_bound=kv_bound, multiprocessors=132)
    units = sequences * GEOMETRY.kv_num_heads
    assert tile.by_warp
    assert 1 <= tile.splits <= MOST_SPLITS
    assert tile.splits == 1 or (tile.splits * units <= 4 * 132 and kv_bound // tile.splits >= tile.block_n)


@pytest.mark.parametrize("cache", ["float16", "int8", "int4"])
def test_the_parts_of_splits_make_the_attention_of_all_keys(cache: Any, operators: CudaOperators, device: Any) -> None:
    rng = np.random.default_rng(11)
    quantised = cache != "float16"
    spec = PagedAttentionSpec(
        num_heads=4, kv_num_heads=2, softcap=20.0,
        **({"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_CHANNEL", "k_cache_dtype": cache, "v_cache_dtype": cache}
           if quantised else {}),
    )  # fmt: skip
    past = np.array([400, 70, 0, 3], np.int32)
    shape = (4 * 26, 16, 2, 16 if cache == "int4" else 32)
    halves = {name: rng.standard_normal((4, width)).astype(np.float16) for name, width in
              (("query", 128), ("key", 64), ("value", 64))}  # fmt: skip
    caches = {"key_cache": np.empty(0), "value_cache": np.empty(0)}
    for name in caches:
        numbers = rng.integers(-100, 100, shape) if cache == "int8" else rng.integers(0, 256, shape)
        stored = rng.standard_normal(shape).astype(np.float16)
        caches[name] = numbers.astype(np.int8 if cache == "int8" else np.uint8) if quantised else stored
    scales = {
        "k_scale": np.full(1, 0.03, np.float32),
        "v_scale": np.linspace(0.01, 0.1, 64, dtype=np.float32).reshape(2, 1, 32),
    }
    inputs: dict[str, Any] = halves | caches | (scales if quantised else {})
    inputs |= {
        "head_sink": rng.standard_normal(4).astype(np.float16),
        "cumulative_sequence_length": np.arange(5, dtype=np.int32),
        "past_seqlens": past,
        "block_table": rng.permutation(4 * 26).astype(np.int32).reshape(4, 26),
    }
    expected = paged_attention(spec, inputs)
    context = operators._context
    operators._context = replace(context, facts=replace(context.facts, multiprocessors=64))
    given = {name: array.copy() for name, array in inputs.items()}
    for _ in range(2):
        outputs = operators.paged_attention(spec)(tier="fused", log_sum_exp=True, **given)
        np.testing.assert_allclose(outputs["output"], expected.output.reshape(4, -1), atol=4e-3)
        np.testing.assert_allclose(outputs["log_sum_exp"], expected.log_sum_exp, atol=4e-3)
