"""From the parameters of a PagedAttention case to its inputs, everything that must not be read poisoned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pageloom.attention.cache_storage import CacheStorage, Element
from pageloom.attention.cases.case import Inputs
from pageloom.attention.cases.data import (
    Poison,
    cache_scale,
    code_is_uncertain,
    normal,
    poisoned,
    random_codes,
    rotary_caches,
)
from pageloom.attention.kv_quantization import spread_scale
from pageloom.attention.numerics.dtypes import NUMPY_DTYPES, Array, Bool, describe_all
from pageloom.attention.paged.check import PagedAttentionShape, check_shapes
from pageloom.attention.paged.reference import prepared_qkv, valid_sequences
from pageloom.attention.paged.spec import PagedAttentionSpec
from pageloom.attention.tensors import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedProblem:
    """The parameters of one case.

    - `new`, `past`: tokens of each sequence; `extra_columns`, `spare_blocks`: room in the table and in the pool beyond
      what they need; `magnitude`: of Q and K.
    - `slots`: slot_mapping absent, the same as the derived slots, or with every third token not stored (-1), or so
      that the slots of these are out of range.
    - `metadata`: attention_metadata, as given.
    - `table_tail`: what unneeded columns of the table hold; `recycle`: whether pages that a window has left behind are
      unmapped and poisoned.
    """

    spec: PagedAttentionSpec
    new: tuple[int, ...]
    past: tuple[int, ...]
    head_size: int
    block_size: int = 16
    dtype: DType = "float16"
    k_element: Element | None = None
    v_element: Element | None = None
    packed: bool = False
    rotary_dim: int = 0
    head_sink: bool = False
    qk_norm: bool = False
    slots: Literal["derived", "given", "holes", "out_of_range"] = "derived"
    metadata: tuple[int, ...] = ()
    extra_columns: int = 1
    spare_blocks: int = 3
    magnitude: float = 1.0
    poison: Poison = "nan"
    table_tail: Literal["unmapped", "out_of_range", "dirty"] = "unmapped"
    recycle: bool = False

    def storage(self, side: str) -> CacheStorage:
        """How side "k" or "v" is cached."""
        element = self.k_element if side == "k" else self.v_element
        quant_type = self.spec.k_quant_type if side == "k" else self.spec.v_quant_type
        default: Any = self.dtype
        return CacheStorage(element or default, quant_type)


def make_inputs(problem: PagedProblem, rng: np.random.Generator) -> Inputs:
    """The inputs of `problem` drawn from `rng`."""
    spec, dtype = problem.spec, problem.dtype
    tokens = sum(problem.new)
    q_width, kv_width = spec.num_heads * problem.head_size, spec.kv_num_heads * problem.head_size
    inputs: Inputs = {"query": normal(rng, (tokens, q_width), dtype, problem.magnitude)}
    key, value = (normal(rng, (tokens, kv_width), dtype, size) for size in (problem.magnitude, 1.0))
    if problem.packed:
        inputs["query"] = np.concatenate([inputs["query"], key, value], axis=1)
    else:
        inputs |= {"key": key} if spec.latent else {"key": key, "value": value}
    table, num_blocks = _block_table(problem, rng)
    inputs |= {
        "cumulative_sequence_length": np.cumsum([0, *problem.new]).astype(np.int32),
        "past_seqlens": np.array(problem.past, np.int32),
        "block_table": table,
    }
    for side in ("k",) if spec.latent else ("k", "v"):
        inputs |= _cache(problem, rng, side, table, num_blocks)
    inputs |= _optional(problem, rng, table, num_blocks)
    settle_codes(problem, rng, inputs)
    return inputs


def _block_table(problem: PagedProblem, rng: np.random.Generator) -> tuple[Array, int]:
    """(block_table, num_blocks): physical ids shuffled, so that no order or neighbourhood can be relied on."""
    needs = [-(-(new + past) // problem.block_size) for new, past in zip(problem.new, problem.past, strict=True)]
    num_blocks = sum(needs) + problem.spare_blocks
    free = rng.permutation(num_blocks).tolist()
    table = np.full((len(needs), max(*needs, 1) + problem.extra_columns), -1, np.int32)
    for row, need in enumerate(needs):
        table[row, :need] = [free.pop() for _ in range(need)]
        if problem.table_tail == "out_of_range":
            table[row, need:] = rng.choice([num_blocks, num_blocks + 7, 2**31 - 1, -2, -(2**31)], table.shape[1] - need)
        elif problem.table_tail == "dirty":
            table[row, need:] = rng.choice(free, table.shape[1] - need)
        if problem.recycle:
            first_needed = max(0, problem.past[row] + 1 - problem.spec.local_window_size)
            table[row, : first_needed // problem.block_size] = -1
    return table, num_blocks


def _cache(problem: PagedProblem, rng: np.random.Generator, side: str, table: Array, num_blocks: int) -> Inputs:
    """The cache of one side, its scale where it has one: poison but for the slots of past tokens."""
    spec, storage = problem.spec, problem.storage(side)
    width = storage.row_width(problem.head_size)
    shape = (num_blocks, problem.block_size, spec.kv_num_heads, width)
    cache = poisoned(rng, shape, storage.element, problem.poison)
    for row, past in enumerate(problem.past):
        positions = np.arange(past)
        blocks = table[row, positions // problem.block_size]
        positions, blocks = positions[blocks >= 0], blocks[blocks >= 0]
        rows = (len(positions), spec.kv_num_heads)
        history: Array
        if storage.quantized:
            history = random_codes(rng, rows, problem.head_size, storage.element)
        else:
            history = normal(rng, (*rows, width), problem.dtype, problem.magnitude if side == "k" else 1.0)
        cache[blocks, positions % problem.block_size] = history
    name = "key" if side == "k" else "value"
    inputs: Inputs = {f"{name}_cache": cache}
    if storage.quantized:
        inputs[f"{side}_scale"] = cache_scale(rng, storage, spec.kv_num_heads, problem.head_size)
    return inputs


def _optional(problem: PagedProblem, rng: np.random.Generator, table: Array, num_blocks: int) -> Inputs:
    spec, dtype = problem.spec, problem.dtype
    inputs: Inputs = {}
    if spec.do_rotary:
        reached = max(new + past for new, past in zip(problem.new, problem.past, strict=True))
        cos, sin = rotary_caches(reached + 5, problem.rotary_dim // 2, dtype)
        cos[reached:], sin[reached:] = np.nan, np.nan
        inputs |= {"cos_cache": cos, "sin_cache": sin}
    if problem.head_sink:
        inputs["head_sink"] = normal(rng, (spec.num_heads,), dtype, 2.0)
    if problem.qk_norm:
        for name in ("q_norm_weight", "k_norm_weight"):
            inputs[name] = (1 + 0.3 * rng.standard_normal(problem.head_size)).astype(NUMPY_DTYPES[dtype])
    if problem.metadata:
        inputs["attention_metadata"] = np.array(problem.metadata, np.int32)
    if problem.slots != "derived":
        positions = [
            (row, past + i)
            for row, (new, past) in enumerate(zip(problem.new, problem.past, strict=True))
            for i in range(new)
        ]
        size = problem.block_size
        slots = np.array([table[row, p // size] * size + p % size for row, p in positions], np.int32)
        if problem.slots == "holes":
            slots[::3] = -1
        elif problem.slots == "out_of_range":
            slots[::3] = rng.choice([num_blocks * size, 2**31 - 1, -2, -(2**31)], len(slots[::3]))
        inputs["slot_mapping"] = slots
    return inputs


def settle_codes(problem: PagedProblem, rng: np.random.Generator, inputs: Inputs) -> None:
    """Redraw new K and V, in place, until no implementation can disagree about a code of a quantised cache.

    So the caches can be demanded bit for bit, and an error budget needs no allowance for a whole code.
    """
    spec = problem.spec
    if not (problem.storage("k").quantized or problem.storage("v").quantized):
        return
    shape = check_shapes(spec, describe_all(inputs))
    if problem.packed:
        heads = inputs["query"].reshape(shape.num_tokens, -1, problem.head_size)
        sources = np.split(heads[:, spec.num_heads :], 2, axis=1)
    else:
        names = ("key",) if spec.latent else ("key", "value")
        sources = [inputs[name].reshape(shape.num_tokens, spec.kv_num_heads, problem.head_size) for name in names]
    for _ in range(100):
        unsettled = _uncertain_rows(problem, shape, inputs)
        if not any(rows.any() for rows in unsettled):
            return
        for source, rows in zip(sources, unsettled, strict=False):
            source[rows] = normal(rng, (int(rows.sum()), problem.head_size), problem.dtype, problem.magnitude)
    raise RuntimeError("the codes of the new tokens did not settle in 100 draws")


def _uncertain_rows(problem: PagedProblem, shape: PagedAttentionShape, inputs: Inputs) -> list[Bool]:
    """bool `[num_tokens, kv_num_heads]` of K and of V: the rows with a code that is not certain."""
    _, key, value = prepared_qkv(problem.spec, shape, inputs, list(valid_sequences(shape, inputs)))
    rows: list[Bool] = []
    for side, values in (("k", key), ("v", value)):
        storage = problem.storage("k" if problem.spec.latent else side)
        if not storage.quantized:
            rows.append(np.zeros(values.shape[:2], np.bool_))
            continue
        scale = spread_scale(
            inputs["k_scale" if problem.spec.latent else f"{side}_scale"],
            storage,
            problem.spec.kv_num_heads,
            shape.head_size,
        )
        rows.append(np.any(code_is_uncertain(values, scale, storage.element, "divide"), axis=-1))
    return rows
