"""The calls that `pageloom bench` measures, what they must move and compute, and what others have measured for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Cache = Literal["float16", "int8"]
CACHE_BYTES = {"float16": 2, "int8": 1}
OTHER_BYTES = 2
"""Of an element of query, new K and V, and output."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch of `batch` sequences alike, with `past` tokens cached and `new` ones."""

    batch: int
    num_heads: int
    kv_num_heads: int
    head_size: int
    past: int
    new: int = 1
    cache: Cache = "float16"
    block_size: int = 16

    def __str__(self) -> str:
        kind = f"decode  {self.batch}/{self.past + 1}" if self.new == 1 else f"prefill {self.batch}x{self.new}"
        kind += f" after {self.past}" if self.new > 1 and self.past else ""
        cache = "" if self.cache == "float16" else f" {self.cache}"
        return f"{kind} {self.num_heads}/{self.kv_num_heads} D={self.head_size}{cache}"

    @property
    def num_tokens(self) -> int:
        return self.batch * self.new

    @property
    def num_bytes(self) -> int:
        """Bytes that must be moved: K and V of the past once, the new tokens in and out."""
        kv = 2 * self.batch * self.past * self.kv_num_heads * self.head_size * CACHE_BYTES[self.cache]
        new_kv = 2 * self.num_tokens * self.kv_num_heads * self.head_size * (OTHER_BYTES + CACHE_BYTES[self.cache])
        return kv + new_kv + 2 * self.num_tokens * self.num_heads * self.head_size * OTHER_BYTES

    @property
    def num_operations(self) -> int:
        """Multiplications and additions of Q.K and P.V over the keys that the causal mask admits."""
        keys = self.new * self.past + self.new * (self.new + 1) // 2
        return 4 * self.batch * self.num_heads * self.head_size * keys

    def limit_seconds(self, bytes_a_second: float, operations_a_second: float) -> float:
        """The least time that a device with these rates needs."""
        return max(self.num_bytes / bytes_a_second, self.num_operations / operations_a_second)


LLAMA_3 = Shape(1, 32, 8, 128, 0)
HEADLINES = (
    replace(LLAMA_3, past=511),
    replace(LLAMA_3, past=4095),
    replace(LLAMA_3, batch=8, past=4095),
    replace(LLAMA_3, batch=32, past=2047),
    replace(LLAMA_3, batch=8, past=4095, cache="int8"),
    replace(LLAMA_3, batch=32, past=2047, cache="int8"),
    replace(LLAMA_3, new=512),
    replace(LLAMA_3, batch=4, new=512),
    replace(LLAMA_3, new=2048),
)
FAMILIES = ((16, 16, 64), (16, 16, 128), (14, 2, 128), (32, 4, 128))
"""Heads and head sizes of ONNX Runtime's own microbenchmark of PagedAttention on WebGPU."""
MIDDLE = Shape(1, 16, 8, 128, 0)
"""Heads of its benchmark of the CPU operator."""
FULL: Sequence[Shape] = (
    *HEADLINES,
    *(Shape(batch, *family, past) for family in FAMILIES for batch in (1, 2) for past in (512, 2048)),
    *(Shape(2, *family, 0, new=512) for family in FAMILIES),
    *(replace(MIDDLE, past=past) for past in (512, 1024, 2048, 4096)),
    replace(MIDDLE, batch=4, past=2048),
    *(replace(MIDDLE, new=new) for new in (1024, 4096)),
)
QUICK: Sequence[Shape] = HEADLINES
SMALL: Sequence[Shape] = (
    replace(LLAMA_3, past=511),
    replace(LLAMA_3, batch=4, past=511),
    replace(LLAMA_3, batch=4, past=511, cache="int8"),
    replace(LLAMA_3, new=64),
)
"""For adapters that compute on a CPU."""

PEER = "ONNX Runtime 1.31.1 CUDA, November 2026"
PEER_GPU = "H200"
PEER_SECONDS: dict[Shape, float] = {
    shape: microseconds * 1e-6
    for shape, microseconds in zip(
        HEADLINES, (18.09, 19.50, 47.95, 77.92, 34.12, 48.24, 27.47, 79.23, 179.67), strict=True
    )
}
"""Its PagedAttention on an NVIDIA H200, nodes chained in a CUDA graph: float16 decode in blocks of 16, int8 and prefill
in blocks of 256."""
