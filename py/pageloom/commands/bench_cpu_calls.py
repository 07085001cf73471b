"""One shape's call on the CPU's operators and on ONNX Runtime, from the same arrays, appended to in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pageloom.attention.group_query.spec import GroupQueryAttentionSpec
from pageloom.attention.numerics.dtypes import Array
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.backends.cpu.arrays import zeros_on_lines
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.cpu.operators.bound import RecordedCall
from pageloom.backends.cpu.tiers import Tier
from pageloom.commands.bench_cpu_shapes import BITS, CpuShape

LARGEST_CODE = {8: 127, 4: 7}


def group_query_spec(shape: CpuShape) -> GroupQueryAttentionSpec:
    """The attributes of the shape as GroupQueryAttention."""
    return GroupQueryAttentionSpec(
        num_heads=shape.num_heads, kv_num_heads=shape.kv_num_heads, **_quantization(shape, bit_width=True)
    )


def _quantization(shape: CpuShape, *, bit_width: bool) -> dict[str, Any]:
    if shape.storage == "float32":
        return {}
    kind = "PER_CHANNEL" if shape.storage.endswith("channels") else "PER_TENSOR"
    quantization: dict[str, Any] = {"k_quant_type": kind, "v_quant_type": kind}
    bits = BITS[shape.storage]
    if bit_width:
        quantization["kv_cache_bit_width"] = bits
    elif bits == 4:
        quantization |= {"k_cache_dtype": "int4", "v_cache_dtype": "int4"}
    return quantization


def group_query_inputs(shape: CpuShape) -> dict[str, Array]:
    """Uniform numbers in [-0.5, 0.5), random codes, and scales with which those span the same."""
    rng = np.random.default_rng(0)
    width, kv_width = shape.num_heads * shape.head_size, shape.kv_num_heads * shape.head_size
    inputs = {"query": _uniform(rng, (1, shape.new, width))}
    inputs |= {name: _uniform(rng, (1, shape.new, kv_width)) for name in ("key", "value")}
    cache = (1, shape.kv_num_heads, shape.total, shape.head_size)
    inputs |= {name: _cache(rng, shape, cache) for name in ("past_key", "past_value")}
    inputs |= _scales(rng, shape)
    inputs["seqlens_k"] = np.array([shape.total - 1], np.int32)
    inputs["total_sequence_length"] = np.array(shape.total, np.int32)
    return inputs


def record_group_query(
    operators: CpuOperators, shape: CpuShape, inputs: dict[str, Array], tier: Tier | None = None
) -> RecordedCall:
    """The call on what `group_query_inputs` made."""
    given: dict[str, Any] = {**inputs, "present_key": inputs["past_key"], "present_value": inputs["past_value"]}
    return operators.group_query_attention(group_query_spec(shape)).record(tier=tier, **given)


def record_paged(operators: CpuOperators, shape: CpuShape, inputs: dict[str, Array]) -> RecordedCall:
    """The same call with its caches as pages in random order: in the same memory, since where an array lies changes
    the time of a call by more than pages do. `shape.total` must be a multiple of `shape.block_size`.
    """
    num_blocks = shape.total // shape.block_size
    given: dict[str, Any] = {name: inputs[name][0] for name in ("query", "key", "value")}
    for name in ("key", "value"):
        given[f"{name}_cache"] = inputs[f"past_{name}"].reshape(num_blocks, shape.block_size, shape.kv_num_heads, -1)
    given |= {name: inputs[name] for name in ("k_scale", "v_scale") if name in inputs}
    given["cumulative_sequence_length"] = np.array([0, shape.new], np.int32)
    given["past_seqlens"] = np.array([shape.total - shape.new], np.int32)
    given["block_table"] = np.random.default_rng(0).permutation(num_blocks).astype(np.int32)[None]
    spec = PagedAttentionSpec(
        num_heads=shape.num_heads, kv_num_heads=shape.kv_num_heads, **_quantization(shape, bit_width=False)
    )
    return operators.paged_attention(spec).record(**given)


def onnxruntime_call(shape: CpuShape, threads: int, *, flash: bool = True) -> Callable[[], None]:
    """The call bound to its arrays in a session of its own, which lives as long as the call does."""
    from pageloom.commands.bench_onnxruntime import bind  # noqa: PLC0415 - needs onnxruntime, which is optional

    inputs = group_query_inputs(shape)
    shared = {"present_key": "past_key", "present_value": "past_value"}
    return bind("group_query_attention", group_query_spec(shape), inputs, shared, threads=threads, flash=flash)


def _uniform(rng: np.random.Generator, size: tuple[int, ...]) -> Array:
    return rng.uniform(-0.5, 0.5, size).astype(np.float32)


def _cache(rng: np.random.Generator, shape: CpuShape, size: tuple[int, ...]) -> Array:
    """On a cache line, as both a runner of models and ONNX Runtime place theirs."""
    *lead, width = size
    bits = BITS[shape.storage]
    dtype: Any = {32: np.float32, 8: np.int8, 4: np.uint8}[bits]
    cache = zeros_on_lines((*lead, width // 2 if bits == 4 else width), dtype)
    if bits == 32:
        cache[...] = _uniform(rng, size)
    else:
        cache.view(np.uint8)[...] = rng.integers(0, 256, cache.shape, np.uint8)
    return cache


def _scales(rng: np.random.Generator, shape: CpuShape) -> dict[str, Array]:
    if shape.storage == "float32":
        return {}
    size = (shape.kv_num_heads, 1, shape.head_size) if shape.storage.endswith("channels") else (1,)
    largest = LARGEST_CODE[BITS[shape.storage]]
    return {name: (rng.uniform(0.4, 0.6, size) / largest).astype(np.float32) for name in ("k_scale", "v_scale")}
