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


class Sinks:
    """float32[num_heads] of sinks in any float type, for `refresh` to read anew before each call."""

    def __init__(self, given: Array | None, num_heads: int, *, smooth: bool) -> None:
        self.values: Array | None = np.zeros(num_heads, np.float32) if smooth else None
        self._given = None
        if given is not None:
            self._given = given if given.dtype != np.float32 else None
            self.values = given if self._given is None else given.astype(np.float32)

    @property
    def refresh(self) -> list[Run]:
        """What has to run before each call, or nothing."""
        values, given = self.values, self._given
        if values is None or given is None:
            return []
        return [lambda: np.copyto(values, given)]


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
