"""The kernels that stand round libraries, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")

from pageloom.attention.onnx.check import OnnxAttentionShape  # noqa: E402
from pageloom.attention.onnx.spec import OnnxAttentionSpec  # noqa: E402
from pageloom.attention.paged.reference import paged_attention  # noqa: E402
from pageloom.attention.paged.spec import PagedAttentionSpec  # noqa: E402
from pageloom.backends.cuda import CudaOperators  # noqa: E402
from pageloom.backends.cuda.onnx_call import AttentionCall  # noqa: E402
from pageloom.backends.cuda.onnx_tiers import clear_hidden_rows  # noqa: E402
from pageloom.backends.cuda.paged_cudnn import Dense, gather  # noqa: E402


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("flat", [True, False])
def test_rows_that_see_no_key_become_zero_and_no_others(
    causal: bool, flat: bool, operators: CudaOperators, device: Any
) -> None:
    shape = OnnxAttentionShape(
        flat=flat, dtype="float16", batch_size=3, q_num_heads=2, kv_num_heads=1, q_sequence_length=4,
        kv_sequence_length=8, past_length=0, head_size=16, v_head_size=24, has_nonpad=True,
    )  # fmt: skip
    memory = torch.full((3, 4, 2, 24) if flat else (3, 2, 4, 24), torch.nan, dtype=torch.float16, device=device)
    output = memory.transpose(1, 2) if flat else memory
    lengths = torch.tensor([0, 3, 8], dtype=torch.int32, device=device)
    call = AttentionCall(
        operators.facts, OnnxAttentionSpec(is_causal=causal), shape,
        query=output, key=output, value=output, output=output, lengths=lengths, mask=None, products=None,
    )  # fmt: skip
    clear_hidden_rows(call, lengths)
    cleared = [[True] * 4, [causal, False, False, False], [False] * 4]
    assert (output == 0).all(dim=(1, 3)).tolist() == cleared
    assert output.isnan().any(dim=3).any(dim=1).tolist() == [[not one for one in row] for row in cleared]


def test_pages_are_gathered_in_order_and_sequences_that_no_dense_tensor_stands_for_are_flagged(
    operators: CudaOperators, device: Any
) -> None:
    rng = np.random.default_rng(5)
    cache = rng.standard_normal((6, 16, 2, 24)).astype(np.float16)
    table = np.array([[4, 1], [0, -1], [2, 5], [3, 0]], np.int32)
    past = np.array([20, 20, -1, 3], np.int32)
    given = {
        "query": np.zeros((8, 4 * 24), np.float16),
        "key": np.zeros((8, 2 * 24), np.float16),
        "value": np.zeros((8, 2 * 24), np.float16),
        "key_cache": cache,
        "value_cache": -cache,
        "cumulative_sequence_length": np.array([0, 2, 4, 6, 8], np.int32),
        "past_seqlens": past,
        "block_table": table,
    }
    tensors = {name: torch.from_numpy(array).to(device) for name, array in given.items()}
    bounds = {"attention_metadata": np.array([2, 24], np.int32)}
    operator = operators.paged_attention(PagedAttentionSpec(num_heads=4, kv_num_heads=2))
    prepared: Any = operator._prepared({**tensors, **bounds})
    call = prepared.cached(prepared.outputs())
    dense = Dense.of_pages(prepared.geometry, call)
    gather(prepared.geometry, call, dense, copies=True)
    assert dense.flags.tolist() == [0, 1, 1, 0]
    assert dense.lengths.tolist() == [22, 0, 0, 5]
    for sequence, keys in ((0, 22), (3, 5)):
        rows = cache[table[sequence]].reshape(-1, 2, 24)[:keys]
        np.testing.assert_array_equal(dense.key[sequence, :keys].cpu().numpy(), rows)
        np.testing.assert_array_equal(dense.value[sequence, :keys].cpu().numpy(), -rows)
        assert not dense.key[sequence, keys:].any()


def test_pages_beyond_the_reach_of_32_bits_are_read_and_written(gpu: Any) -> None:
    blocks, kept = 2**31 // (256 * 64) + 2, 3
    if torch.cuda.mem_get_info(gpu)[0] < 6 * 2**30:
        pytest.skip("the GPU has no 6 GiB to spare")
    rng = np.random.default_rng(9)
    pages = rng.integers(-127, 128, (2, kept, 256, 1, 64)).astype(np.int8)
    new = {name: rng.standard_normal((1, width)).astype(np.float16) for name, width in
           (("query", 256), ("key", 64), ("value", 64))}  # fmt: skip
    scales = {name: np.full(1, 0.02, np.float32) for name in ("k_scale", "v_scale")}
    lengths = {"cumulative_sequence_length": np.array([0, 1], np.int32), "past_seqlens": np.array([600], np.int32)}
    spec = PagedAttentionSpec(num_heads=4, kv_num_heads=1, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")
    small = {"key_cache": pages[0], "value_cache": pages[1], "block_table": np.arange(kept, dtype=np.int32)[None]}
    expected = paged_attention(spec, new | scales | lengths | small)
    caches = {}
    for name, side in (("key_cache", pages[0]), ("value_cache", pages[1])):
        caches[name] = torch.empty((blocks, 256, 1, 64), dtype=torch.int8, device=gpu)
        caches[name][blocks - kept :] = torch.from_numpy(side).to(gpu)
    table = {"block_table": np.arange(blocks - kept, blocks, dtype=np.int32)[None]}
    operator = CudaOperators(gpu).paged_attention(spec)
    for tier in ("fused", "triton"):
        output = operator(tier=tier, **new, **scales, **lengths, **caches, **table)["output"]
        np.testing.assert_allclose(output, expected.output.reshape(1, -1), atol=2e-3)
    for name, side in (("key_cache", expected.key_cache), ("value_cache", expected.value_cache)):
        np.testing.assert_array_equal(caches[name][blocks - kept :].cpu().numpy(), side)
