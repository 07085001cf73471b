"""Kernels that start while the one before them ends, on GPUs of compute capability 9.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")
triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'pageloom[cuda]'")

import triton.language as tl  # noqa: E402
from triton.language.extra.cuda import gdc_launch_dependents  # noqa: E402

from pageloom.attention.paged.reference import paged_attention  # noqa: E402
from pageloom.attention.paged.spec import PagedAttentionSpec  # noqa: E402
from pageloom.backends.cuda import CudaOperators  # noqa: E402
from pageloom.backends.cuda.availability import overlaps_launches  # noqa: E402

SPEC = PagedAttentionSpec(num_heads=8, kv_num_heads=2)
BATCH, COLUMNS = 4, 64
TURNS = 500_000
"""About a millisecond, in which the host queues the next kernel."""


@triton.jit
def write_late(past, table, new_past, new_table, sink, turns, batch: tl.constexpr, places: tl.constexpr):
    """Let the next kernel start, compute for some time, and only then store the lengths and the block table."""
    gdc_launch_dependents()
    number = tl.load(sink)
    for _ in range(turns):
        number = number * 0.5 + 1.0
    tl.store(sink, number)
    tl.debug_barrier()
    sequence = tl.arange(0, batch)
    tl.store(past + sequence, tl.load(new_past + sequence))
    place = tl.arange(0, places)
    tl.store(table + place, tl.load(new_table + place))


@pytest.mark.parametrize("cache", ["float16", "int8"])
def test_lengths_and_pages_that_the_kernel_before_writes_at_its_end_are_the_ones_that_count(
    cache: Any, gpu: Any
) -> None:
    if not overlaps_launches(gpu):
        pytest.skip("kernels overlap on compute capability 9.0 only")
    rng = np.random.default_rng(21)
    blocks = BATCH * COLUMNS
    spec, scales = SPEC, {}
    caches = {
        name: rng.standard_normal((blocks, 16, 2, 64)).astype(np.float16) for name in ("key_cache", "value_cache")
    }
    if cache == "int8":
        spec = PagedAttentionSpec(num_heads=8, kv_num_heads=2, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")
        scales = {name: np.full(1, 0.02, np.float32) for name in ("k_scale", "v_scale")}
        caches = {name: (array * 50).clip(-127, 127).astype(np.int8) for name, array in caches.items()}
    inputs: dict[str, Any] = scales | caches | {
        "query": rng.standard_normal((BATCH, 8 * 64)).astype(np.float16),
        "key": rng.standard_normal((BATCH, 2 * 64)).astype(np.float16),
        "value": rng.standard_normal((BATCH, 2 * 64)).astype(np.float16),
        "cumulative_sequence_length": np.arange(BATCH + 1, dtype=np.int32),
        "past_seqlens": np.array([1000, 3, 517, 16], np.int32),
        "block_table": rng.permutation(blocks).astype(np.int32).reshape(BATCH, COLUMNS),
    }  # fmt: skip
    expected = paged_attention(spec, inputs)
    given = {name: torch.from_numpy(array.copy()).to(gpu) for name, array in inputs.items()}
    operator = CudaOperators(gpu).paged_attention(spec)
    bounds = {"attention_metadata": np.array([1, 16 * COLUMNS], np.int32)}
    operator(tier="fused", **given, **bounds)
    past, table = given["past_seqlens"].clone(), given["block_table"].clone()
    stale_pages = torch.arange(-2, blocks - 2, dtype=torch.int32, device=gpu).reshape(BATCH, COLUMNS)
    for stale_past in (0, 900):
        given["past_seqlens"].fill_(stale_past)
        given["block_table"].copy_(stale_pages)
        for name, array in caches.items():
            given[name].copy_(torch.from_numpy(array))
        torch.cuda.synchronize()
        sink = torch.ones(1, device=gpu)
        write_late[(1,)](
            given["past_seqlens"], given["block_table"], past, table, sink, TURNS, BATCH, blocks, launch_pdl=True
        )
        output = operator(tier="fused", **given, **bounds)["output"]
        np.testing.assert_allclose(output.cpu().numpy(), expected.output.reshape(BATCH, -1), atol=4e-3)
        for name, array in (("key_cache", expected.key_cache), ("value_cache", expected.value_cache)):
            np.testing.assert_array_equal(given[name].cpu().numpy(), array)
