"""Calls inside CUDA graphs."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pageloom[cuda]'")

from pageloom.attention.onnx.spec import OnnxAttentionSpec  # noqa: E402
from pageloom.attention.paged.reference import paged_attention  # noqa: E402
from pageloom.attention.paged.spec import PagedAttentionSpec  # noqa: E402
from pageloom.backends.cuda import CudaOperators  # noqa: E402
from pageloom.backends.cuda.tensors import to_numpy  # noqa: E402
from pageloom.errors import InvalidArgument, NotSupported, NotWarmedUp  # noqa: E402

HEADS, KV_HEADS, WIDTH, VOCABULARY, STEPS = 4, 2, 64, 97, 64
BATCH, BLOCK_SIZE, COLUMNS = 3, 16, 8
SPEC = PagedAttentionSpec(num_heads=HEADS, kv_num_heads=KV_HEADS)


class Loop:
    """A decoder of one attention layer, its state on the device: `step` reads tokens and lengths, and moves them on."""

    def __init__(self, operators: CudaOperators, device: Any, tier: Any) -> None:
        generator = torch.Generator(device="cpu").manual_seed(7)

        def matrix(*shape: int) -> Any:
            return (torch.randn(shape, generator=generator) / shape[0] ** 0.5).half().to(device)

        self._operator, self._tier = operators.paged_attention(SPEC), tier
        self._embedding = matrix(VOCABULARY, 48)
        self._q, self._k, self._v = (
            matrix(48, HEADS * WIDTH),
            matrix(48, KV_HEADS * WIDTH),
            matrix(48, KV_HEADS * WIDTH),
        )
        self._out = matrix(HEADS * WIDTH, VOCABULARY)
        self.tokens = torch.tensor([1, 2, 3], device=device)
        self._past = torch.tensor([0, 15, 40], dtype=torch.int32, device=device)
        blocks = torch.randperm(BATCH * COLUMNS, generator=generator).to(torch.int32).to(device)
        cache = (BATCH * COLUMNS, BLOCK_SIZE, KV_HEADS, WIDTH)
        self._fixed = {
            "key_cache": torch.zeros(cache, dtype=torch.float16, device=device),
            "value_cache": torch.zeros(cache, dtype=torch.float16, device=device),
            "cumulative_sequence_length": torch.arange(BATCH + 1, dtype=torch.int32, device=device),
            "past_seqlens": self._past,
            "block_table": blocks.reshape(BATCH, COLUMNS),
            "attention_metadata": np.array([1, BLOCK_SIZE * COLUMNS], np.int32),
        }

    def step(self) -> None:
        state = self._embedding[self.tokens]
        qkv = {"query": state @ self._q, "key": state @ self._k, "value": state @ self._v}
        output = self._operator(tier=self._tier, **qkv, **self._fixed)["output"]
        self.tokens.copy_((output @ self._out).argmax(dim=-1))
        self._past += 1


@pytest.mark.parametrize("tier", ["fused", "triton", "unfused"])
def test_a_captured_decode_loop_gives_the_tokens_of_the_eager_one_at_every_step_and_copies_nothing_to_the_host(
    tier: str, gpu: torch.device
) -> None:
    eager = Loop(CudaOperators(gpu), gpu, tier)
    expected = []
    for _ in range(STEPS):
        eager.step()
        expected.append(eager.tokens.tolist())
    operators = CudaOperators(gpu)
    captured = Loop(operators, gpu, tier)
    spoilt = Loop(operators, gpu, tier)
    graph = operators.capture(captured.step, warm_up=spoilt.step)
    seen = torch.empty((STEPS, BATCH), dtype=torch.int64, device=gpu)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for index in range(STEPS):
            graph.replay()
            seen[index].copy_(captured.tokens)
        torch.cuda.synchronize()
    assert seen.tolist() == expected
    assert [event.key for event in profile.key_averages() if "DtoH" in event.key] == []


def test_a_capture_survives_that_the_garbage_collector_wakes_with_an_older_graph_to_destroy(gpu: Any) -> None:
    operators = CudaOperators(gpu)
    counted = torch.zeros(1, device=gpu)
    thresholds = gc.get_threshold()

    def step() -> None:
        gc.set_threshold(1)
        for _ in range(100):
            counted.add_(len([[]]))

    try:
        knot: list[Any] = [operators.capture(step)]
        gc.set_threshold(1_000_000)
        knot.append(knot)
        del knot
        graph = operators.capture(step)
    finally:
        gc.set_threshold(*thresholds)
    graph.replay()
    assert counted.item() == 100


def test_a_cold_plan_ends_a_capture_before_anything_of_the_call_is_in_it(gpu: Any) -> None:
    operators = CudaOperators(gpu)
    loop = Loop(operators, gpu, "fused")
    with pytest.raises(NotWarmedUp, match="PagedAttention has never run with these shapes"):
        operators.capture(loop.step)
    assert operators.plans.plans == 0
    operators.capture(loop.step, warm_up=loop.step).replay()


def test_host_memory_is_refused_in_a_capture(gpu: Any) -> None:
    operators = CudaOperators(gpu)
    heads = torch.zeros((1, 1, 1, 64), dtype=torch.float16, device=gpu)
    attention = operators.attention(OnnxAttentionSpec())
    lengths = np.array([1], np.int64)
    attention(Q=heads, K=heads, V=heads, nonpad_kv_seqlen=lengths)
    with pytest.raises(InvalidArgument, match="nonpad_kv_seqlen is in host memory"):
        operators.capture(lambda: attention(Q=heads, K=heads, V=heads, nonpad_kv_seqlen=lengths))


def test_plans_are_bounded(gpu: Any) -> None:
    operators = CudaOperators(gpu, plan_capacity=3)
    attention = operators.attention(OnnxAttentionSpec(is_causal=True))
    for rows in range(1, 9):
        heads = torch.zeros((1, 1, rows, 64), dtype=torch.float16, device=gpu)
        attention(tier="cudnn", Q=heads, K=heads, V=heads)
    assert (operators.plans.plans, operators.plans.misses, operators.plans.evictions) == (3, 8, 5)


def test_tokens_of_no_sequence_are_zero_after_cudnn_has_computed_them(gpu: Any) -> None:
    rng = np.random.default_rng(3)
    shape = (8, 4 * 64)
    arrays = {
        "query": rng.standard_normal(shape).astype(np.float16),
        "key": rng.standard_normal((8, 2 * 64)).astype(np.float16),
        "value": rng.standard_normal((8, 2 * 64)).astype(np.float16),
        "key_cache": np.zeros((4, 16, 2, 64), np.float16),
        "value_cache": np.zeros((4, 16, 2, 64), np.float16),
        "cumulative_sequence_length": np.array([0, 4, 7], np.int32),
        "past_seqlens": np.array([0, 0], np.int32),
        "block_table": np.array([[2], [1]], np.int32),
    }
    given: dict[str, Any] = {name: torch.from_numpy(array).to(gpu) for name, array in arrays.items()}
    bounds = {"attention_metadata": np.array([4, 4], np.int32)}
    operator = CudaOperators(gpu).paged_attention(SPEC)
    output = to_numpy(operator(tier="cudnn", **given, **bounds)["output"])
    expected = paged_attention(SPEC, arrays).output.reshape(8, -1)
    assert not output[7].any()
    np.testing.assert_allclose(output, expected, atol=2e-3)


def test_graphs_are_refused_without_a_gpu(operators: CudaOperators, device: Any) -> None:
    if device.type == "cuda":
        pytest.skip("there is a GPU")
    with pytest.raises(NotSupported, match="CUDA graphs need a GPU"):
        operators.capture(lambda: None)
