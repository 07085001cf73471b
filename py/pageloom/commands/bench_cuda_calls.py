"""Calls of the CUDA backend on one GPU, timed as CUDA graphs of a chain of layers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pageloom.attention.onnx.spec import OnnxAttentionSpec
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.graphs import without_collections
from pageloom.commands.bench_shapes import Shape
from pageloom.errors import DeviceError, NotSupported

LAYERS = 16
"""Calls of one graph, each on a cache of its own, so that none finds the last one's keys in the L2 cache."""
MOST_CACHE_BYTES = 2**33
INT8_SCALE = 0.02
Step = Callable[[int], None]
"""The call of one layer."""


@dataclass(frozen=True, slots=True)
class Timed:
    """`seconds` of one call in each repeat, or the `reason` why there are none."""

    name: str
    seconds: tuple[float, ...] = ()
    reason: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The distance of the slowest repeat from the quickest, over the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median


def layers_of(shape: Shape) -> int:
    """How many caches of this shape are kept at once."""
    return max(2, min(LAYERS, MOST_CACHE_BYTES // max(1, shape.num_bytes)))


def measure(steps: dict[str, Step | str], layers: int, repeats: int) -> list[Timed]:
    """Each step over all layers as one CUDA graph, the steps in turns. A step that is a string is a reason for none."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    reasons: dict[str, str] = {}
    for name, step in steps.items():
        if isinstance(step, str):
            reasons[name] = step
            continue
        try:
            for layer in range(layers):
                step(layer)
            torch.cuda.synchronize()
            graphs[name] = torch.cuda.CUDAGraph()
            with without_collections(), torch.cuda.graph(graphs[name]):
                for layer in range(layers):
                    step(layer)
        except (NotSupported, DeviceError) as error:
            graphs.pop(name, None)
            reasons[name] = error.message
    seconds: dict[str, list[float]] = {name: [] for name in graphs}
    for graph in graphs.values():
        _replay(graph, 3)
    for _ in range(repeats):
        for name, graph in graphs.items():
            seconds[name].append(_replay(graph, 5) / layers)
    return [Timed(name, tuple(seconds.get(name, ())), reasons.get(name, "")) for name in steps]


def _replay(graph: torch.cuda.CUDAGraph, times: int) -> float:
    """Seconds of one replay, by the device's clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / times / 1e3


def warm_up(seconds: float = 0.3) -> None:
    """Bring the clocks up."""
    matrix = torch.randn(4096, 4096, dtype=torch.float16, device="cuda")
    start, now = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    elapsed = 0.0
    while elapsed < seconds:
        for _ in range(20):
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        now.record()
        now.synchronize()
        elapsed = start.elapsed_time(now) / 1e3


def rates() -> tuple[float, float]:
    """(bytes a second of a large copy, read and written; operations a second of a large float16 matrix product)."""
    source = torch.empty(2**30, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    square = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    steps: dict[str, Step | str] = {
        "copy": lambda _: _ignore(torch.mul(source, 2.0, out=target)),
        "product": lambda _: _ignore(square @ square),
    }
    copied, multiplied = measure(steps, 1, 5)
    return 2 * source.nbytes / min(copied.seconds), 2 * 8192**3 / min(multiplied.seconds)


def _ignore(_: torch.Tensor) -> None:
    """A step returns nothing."""


def paged_step(operators: CudaOperators, shape: Shape, layers: int, tier: Any = None) -> Step:
    """PagedAttention with its append, on caches of shuffled blocks."""
    quant: Any = "PER_TENSOR" if shape.cache == "int8" else "NONE"
    spec = PagedAttentionSpec(
        num_heads=shape.num_heads, kv_num_heads=shape.kv_num_heads, k_quant_type=quant, v_quant_type=quant
    )
    operator = operators.paged_attention(spec)
    kv_width = shape.kv_num_heads * shape.head_size
    columns = -(-(shape.past + shape.new) // shape.block_size)
    blocks = shape.batch * columns
    cache = (blocks, shape.block_size, shape.kv_num_heads, shape.head_size)
    inputs: dict[str, Any] = {
        "query": random_halves((shape.num_tokens, shape.num_heads * shape.head_size)),
        "key": random_halves((shape.num_tokens, kv_width)),
        "value": random_halves((shape.num_tokens, kv_width)),
        "cumulative_sequence_length": torch.arange(
            0, shape.num_tokens + 1, shape.new, dtype=torch.int32, device="cuda"
        ),
        "past_seqlens": torch.full((shape.batch,), shape.past, dtype=torch.int32, device="cuda"),
        "block_table": torch.randperm(blocks, device="cuda").to(torch.int32).reshape(shape.batch, columns),
        "attention_metadata": np.array([shape.new, shape.past + shape.new], np.int32),
    }
    if shape.cache == "int8":
        inputs |= {name: torch.full((1,), INT8_SCALE, device="cuda") for name in ("k_scale", "v_scale")}
        caches = [
            tuple(torch.randint(-127, 128, cache, dtype=torch.int8, device="cuda") for _ in "kv") for _ in range(layers)
        ]
    else:
        caches = [tuple(random_halves(cache) for _ in "kv") for _ in range(layers)]

    def step(layer: int) -> None:
        key_cache, value_cache = caches[layer]
        operator(tier=tier, key_cache=key_cache, value_cache=value_cache, **inputs)

    return step


def external_step(operators: CudaOperators, shape: Shape, capacity: int, layers: int, tier: Any = None) -> Step:
    """Attention 24 of one token over an external cache of `capacity` rows, all valid but for those after the past."""
    operator = operators.attention(OnnxAttentionSpec(is_causal=True))
    query = random_halves((shape.batch, shape.num_heads, 1, shape.head_size))
    lengths = torch.full((shape.batch,), shape.past + 1, dtype=torch.int64, device="cuda")
    cache = (shape.batch, shape.kv_num_heads, capacity, shape.head_size)
    caches = [tuple(random_halves(cache) for _ in "kv") for _ in range(layers)]

    def step(layer: int) -> None:
        key, value = caches[layer]
        operator(tier=tier, Q=query, K=key, V=value, nonpad_kv_seqlen=lengths)

    return step


def random_halves(shape: Sequence[int]) -> torch.Tensor:
    """float16 on the GPU, of the normal distribution."""
    return torch.randn(tuple(shape), dtype=torch.float16, device="cuda")


def with_block_size(shape: Shape, block_size: int) -> Shape:
    """`shape` on pages of another size."""
    return replace(shape, block_size=block_size)
