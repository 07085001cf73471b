"""The tensors of one call over a cache, and how the kernels name what they are compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pageloom.attention.cache_storage import CacheStorage
from pageloom.backends.cuda.geometry import Geometry, power_of_two

SEARCHED_AT_ONCE = (64, 1024)
"""Sequences that a program compares with its token in one step: few, or many."""
_KINDS = {"int8": "int8", "int4": "int4", "float8e4m3fn": "float8"}


@dataclass(frozen=True, slots=True)
class Strides:
    """Elements from one sequence (or block of a cache), row and head to the next."""

    batch: int
    row: int
    head: int


@dataclass(frozen=True, slots=True)
class Cached:
    """The tensors of one call over a cache.

    - `inputs`: by ONNX name, on the device; `key`, `value`: new K and V, rows of `kv_row` elements apart, None where
      there are none; `query`: Q, rows `query_row` apart.
    - `key_cache`, `value_cache` and their strides; `output` `[.., num_heads, v_head_size]`; `log_sum_exp` or None.
    - `starts`, `lengths`, `query_lengths`, `table`: the integers, as `Lengths` says.
    - `scores`: where GroupQueryAttention's output_qk goes, or None.
    - `sequences`; `num_tokens`; `rows` new tokens of each where that is static, else 0; `limit` of the keys;
      `query_bound`, `kv_bound`: upper bounds, for one sequence.
    """

    inputs: Mapping[str, torch.Tensor]
    query: torch.Tensor
    key: torch.Tensor | None
    value: torch.Tensor | None
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    output: torch.Tensor
    log_sum_exp: torch.Tensor | None
    query_strides: Strides
    key_strides: Strides
    value_strides: Strides
    output_strides: Strides
    kv_row: int
    starts: torch.Tensor | None
    lengths: torch.Tensor | None
    query_lengths: torch.Tensor | None
    table: torch.Tensor | None
    sequences: int
    num_tokens: int
    rows: int
    limit: int
    fixed_past: int
    query_bound: int
    kv_bound: int
    num_blocks: int = 0
    scores: torch.Tensor | None = None

    @property
    def columns(self) -> int:
        return self.table.shape[1] if self.table is not None else 0

    @property
    def cos_rows(self) -> int:
        return self.inputs["cos_cache"].shape[0] if "cos_cache" in self.inputs else 1


def kind(storage: CacheStorage) -> str:
    """How the kernels name a cache's element."""
    return _KINDS.get(storage.element, "float")


def scaled(storage: CacheStorage) -> str:
    """How the kernels name the granularity of its scale."""
    return {"NONE": "none", "PER_TENSOR": "tensor", "PER_CHANNEL": "channel"}[storage.quant_type]


def prologue(geometry: Geometry) -> dict[str, Any]:
    """What the kernels that prepare Q, K and V are compiled for."""
    return {
        "K_KIND": kind(geometry.key_storage),
        "V_KIND": kind(geometry.value_storage),
        "K_SCALED": scaled(geometry.key_storage),
        "V_SCALED": scaled(geometry.value_storage),
        "RECIPROCAL": geometry.reciprocal,
        "NORM": geometry.norm,
        "ROTARY": geometry.rotary,
        "ROTARY_DIM": geometry.rotary_dim,
        "ROTARY_OFFSET": geometry.rotary_offset,
        "PAGED": geometry.block_size > 0,
        "LENGTHS": geometry.lengths,
        "HEAD": geometry.head_size,
        "HEAD_BLOCK": power_of_two(geometry.head_size, 16),
    }
