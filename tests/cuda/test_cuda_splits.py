"""Keys that are split over programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pageloom.attention.paged.reference import paged_attention
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cuda import CudaOperators


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
