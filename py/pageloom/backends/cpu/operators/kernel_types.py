"""What the compiled kernels take, and inputs brought to it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pageloom.attention.cache_storage import CacheStorage
from pageloom.attention.numerics.dtypes import Array
from pageloom.attention.tensors import DType
from pageloom.backends.cpu.operators.bound import Run
from pageloom.backends.cpu.tiers import COMPILED_TIERS, Tier

FLOATS = ("float32", "float16")
ELEMENTS = (*FLOATS, "int8", "int4")


def why_no_kernel(tensors: Mapping[str, DType], caches: Mapping[str, CacheStorage]) -> dict[Tier, str]:
    """The reason, for all compiled tiers alike, why no kernel takes these element types; empty where one does."""
    for name, dtype in tensors.items():
        if dtype not in FLOATS:
            return dict.fromkeys(COMPILED_TIERS, f"{name} is {dtype}; the kernels take {' and '.join(FLOATS)}")
    for name, storage in caches.items():
        if storage.element not in ELEMENTS:
            return dict.fromkeys(
                COMPILED_TIERS, f"{name} holds {storage.element}; the kernels read {', '.join(ELEMENTS)}"
            )
    return {}


def sinks_of(head_sink: Array | None, num_heads: int, *, smooth: bool) -> Array | None:
    """The sinks given, or zeros where the softmax is a smooth one."""
    return np.zeros(num_heads, np.float32) if head_sink is None and smooth else head_sink


def in_turn(steps: list[Run]) -> Run:
    """One call that makes all `steps`."""
    if len(steps) == 1:
        return steps[0]
    if len(steps) == 2:
        first, second = steps

        def both() -> None:
            first()
            second()

        return both

    def every() -> None:
        for step in steps:
            step()

    return every
