"""From the parameters of a GroupQueryAttention case to its inputs and what they must give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pageloom.attention.cache_storage import CacheStorage, Element
from pageloom.attention.cases.case import Inputs, expected_cache, expected_numbers
from pageloom.attention.cases.compare import Expected
from pageloom.attention.cases.data import (
    Poison,
    cache_scale,
    code_is_uncertain,
    normal,
    poisoned,
    random_codes,
    rotary_caches,
)
from pageloom.attention.group_query.check import check_shapes
from pageloom.attention.group_query.reference import group_query_attention, prepared_qkv
from pageloom.attention.group_query.spec import SIDES, GroupQueryAttentionSpec, Side
from pageloom.attention.kv_quantization import spread_scale
from pageloom.attention.numerics.dtypes import (
    NUMPY_DTYPES,
    SMALLEST_NORMAL,
    UNIT_ROUNDOFF,
    Bool,
    describe_all,
    to_float64,
)
from pageloom.attention.numerics.error_budget import attention_errors, output_budget, stored_key_budget
from pageloom.attention.tensors import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueryProblem:
    """The parameters of one case.

    - `rows`: sequence_length of the call; `totals`: tokens of each sequence after it; `chunks`: query_seqlens, or () to
      leave it away; `capacity`: rows of the past, 0 for just the past, None for no past at all.
    - `bias`: batch and head dimensions of the bias, or None, and `bias_spare` columns beyond the total;
      `shared`: key and value are empty.
    - `k_element`, `v_element`: of quantised caches, or None.
    """

    spec: GroupQueryAttentionSpec
    rows: int
    totals: tuple[int, ...]
    head_size: int
    chunks: tuple[int, ...] = ()
    capacity: int | None = None
    dtype: DType = "float32"
    k_element: Element | None = None
    v_element: Element | None = None
    packed: bool = False
    shared: bool = False
    rotary_dim: int = 0
    position_offset: int = 0
    bias: tuple[int, int] | None = None
    bias_spare: int = 0
    head_sink: bool = False
    qk_norm: bool = False
    magnitude: float = 1.0
    poison: Poison = "nan"

    def storage(self, side: Side) -> CacheStorage:
        """How one side is cached."""
        default: Any = self.dtype
        element = self.k_element if side == "k" else self.v_element
        return CacheStorage(element or default, self.spec.quant_type(side))


def make_inputs(problem: GroupQueryProblem, rng: np.random.Generator) -> Inputs:
    """The inputs of `problem` drawn from `rng`."""
    spec, dtype, batch = problem.spec, problem.dtype, len(problem.totals)
    total = max(problem.totals)
    q_width, kv_width = spec.num_heads * problem.head_size, spec.kv_num_heads * problem.head_size
    rows = (batch, problem.rows)
    inputs: Inputs = {"query": normal(rng, (*rows, q_width), dtype, problem.magnitude)}
    kv_rows = (batch, 0 if problem.shared else problem.rows, kv_width)
    key, value = normal(rng, kv_rows, dtype, problem.magnitude), normal(rng, kv_rows, dtype)
    if problem.packed:
        inputs["query"] = np.concatenate([inputs["query"], key, value], axis=2)
    else:
        inputs |= {"key": key, "value": value}
    inputs |= {
        "seqlens_k": np.array(problem.totals, np.int32) - np.int32(1),
        "total_sequence_length": np.array(total, np.int32),
    }
    if problem.chunks:
        inputs["query_seqlens"] = np.array(problem.chunks, np.int32)
    if problem.capacity is not None:
        inputs |= _past(problem, rng, problem.capacity or total - problem.rows)
    for side in SIDES:
        if problem.storage(side).quantized:
            inputs[f"{side}_scale"] = cache_scale(rng, problem.storage(side), spec.kv_num_heads, problem.head_size)
    if spec.do_rotary:
        cos, sin = rotary_caches(total + problem.rows + problem.position_offset, problem.rotary_dim // 2, dtype)
        inputs |= {"cos_cache": cos, "sin_cache": sin}
    if problem.position_offset:
        starts = inputs["seqlens_k"].astype(np.int64) + 1 - problem.rows + problem.position_offset
        inputs["position_ids"] = starts[:, None] + np.arange(problem.rows)
    if problem.bias:
        inputs["attention_bias"] = normal(rng, (*problem.bias, problem.rows, total + problem.bias_spare), dtype)
    if problem.head_sink:
        inputs["head_sink"] = normal(rng, (spec.num_heads,), dtype, 2.0)
    if problem.qk_norm:
        for name in ("q_norm_weight", "k_norm_weight"):
            inputs[name] = (1 + 0.3 * rng.standard_normal(problem.head_size)).astype(NUMPY_DTYPES[dtype])
    settle_codes(problem, rng, inputs)
    return inputs


def _past_lengths(problem: GroupQueryProblem) -> list[int]:
    """Tokens of each sequence before the call."""
    if problem.shared:
        return list(problem.totals)
    if problem.chunks:
        return [total - new for total, new in zip(problem.totals, problem.chunks, strict=True)]
    if problem.rows == max(problem.totals):
        return [0] * len(problem.totals)
    return [total - problem.rows for total in problem.totals]


def _past(problem: GroupQueryProblem, rng: np.random.Generator, capacity: int) -> Inputs:
    """past_key and past_value: poison but for the rows of past tokens."""
    spec = problem.spec
    inputs: Inputs = {}
    for side, name in zip(SIDES, ("past_key", "past_value"), strict=True):
        storage = problem.storage(side)
        width = storage.row_width(problem.head_size)
        past = poisoned(rng, (len(problem.totals), spec.kv_num_heads, capacity, width), storage.element, problem.poison)
        for row, length in enumerate(_past_lengths(problem)):
            kept = spec.resident_length(length, capacity) if spec.sliding_window_cache else length
            shape = (spec.kv_num_heads, kept)
            if storage.quantized:
                past[row, :, :kept] = random_codes(rng, shape, problem.head_size, storage.element)
            else:
                past[row, :, :kept] = normal(rng, (*shape, width), problem.dtype)
        inputs[name] = past
    return inputs


def settle_codes(problem: GroupQueryProblem, rng: np.random.Generator, inputs: Inputs) -> None:
    """Redraw new K and V, in place, until no implementation can disagree about a code of a quantised cache."""
    if problem.shared:
        return
    spec, rows = problem.spec, (len(problem.totals), problem.rows)
    shape = check_shapes(spec, describe_all(inputs), max(problem.totals))
    if problem.packed:
        heads = inputs["query"].reshape(*rows, -1, problem.head_size)
        sources = np.split(heads[:, :, spec.num_heads :], 2, axis=2)
    else:
        sources = [inputs[name].reshape(*rows, -1, problem.head_size) for name in ("key", "value")]
    for _ in range(100):
        _, key, value = prepared_qkv(spec, shape, inputs)
        unsettled = [_uncertain(problem, inputs, side, part) for side, part in zip(SIDES, (key, value), strict=True)]
        if not any(part.any() for part in unsettled):
            return
        for source, redraw in zip(sources, unsettled, strict=True):
            source[redraw] = normal(rng, (int(redraw.sum()), problem.head_size), problem.dtype, problem.magnitude)
    raise RuntimeError("the codes of the new tokens did not settle in 100 draws")


def _uncertain(problem: GroupQueryProblem, inputs: Inputs, side: Side, values: Any) -> Bool:
    storage = problem.storage(side)
    if not storage.quantized:
        return np.zeros(values.shape[:-1], np.bool_)
    scale = spread_scale(inputs[f"{side}_scale"], storage, problem.spec.kv_num_heads, problem.head_size)
    uncertain: Bool = np.any(code_is_uncertain(values, scale, storage.element, "reciprocal"), axis=-1)
    return uncertain


def expected_outputs(problem: GroupQueryProblem, inputs: Inputs) -> dict[str, Expected]:
    """output, present_key, present_value, and output_qk where it is asked for."""
    spec, dtype = problem.spec, problem.dtype
    result = group_query_attention(spec, inputs)
    computed_keys = spec.do_rotary or problem.qk_norm
    errors = attention_errors(
        dtype,
        head_size=problem.head_size,
        num_keys=result.num_keys,
        logit_mass=result.logit_mass,
        logit_size=result.logit_size,
        softcap=spec.softcap,
        operand_roundings=3 if computed_keys else 0,
    )
    budget = output_budget(dtype, errors, result.mass, result.output)
    budget[~result.specified] = np.inf
    cache_budget = np.where(result.resident, 0.0, np.inf)[:, None, :]
    key_budget = np.broadcast_to(cache_budget, result.present_key.shape[:-1]).copy()
    if computed_keys and not problem.storage("k").quantized:
        size = stored_key_budget(dtype, to_float64(result.present_key), problem.head_size)
        key_budget = np.maximum(key_budget, size)
    outputs = {
        "output": expected_numbers(result.output, budget),
        "present_key": expected_cache(result.present_key, key_budget),
        "present_value": expected_cache(
            result.present_value, np.broadcast_to(cache_budget, result.present_value.shape[:-1])
        ),
    }
    if result.output_qk is not None:
        size = 2 * UNIT_ROUNDOFF[dtype] * np.abs(result.output_qk).max(axis=-1) + SMALLEST_NORMAL[dtype]
        error = errors.logit if spec.qk_output == 1 else errors.weight
        qk_budget = error.swapaxes(1, 2) + size
        qk_budget[np.broadcast_to(~result.specified[:, None], qk_budget.shape)] = np.inf
        outputs["output_qk"] = expected_numbers(result.output_qk, qk_budget)
    return outputs
