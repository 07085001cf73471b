"""The calls that `pageloom bench --backend cpu` measures, what they move and compute, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Storage = Literal["float32", "int8", "int8 channels", "int4", "int4 channels"]
"""How K and V are cached: unquantised, or with one scale or with one for each channel."""
Part = Literal["decode", "paged", "split", "prefill", "call"]
PARTS: tuple[Part, ...] = ("decode", "paged", "split", "prefill", "call")
BITS: dict[Storage, int] = {"float32": 32, "int8": 8, "int8 channels": 8, "int4": 4, "int4 channels": 4}
F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class CpuShape:
    """A GroupQueryAttention of one sequence: `new` tokens that end at `total`.

    `block_size` is that of PagedAttention where the call is made as one, 0 else. `wanted` is the least ratio of the
    peer's time to ours; the peer is ONNX Runtime, or for the parts paged and split a call of our own.
    """

    part: Part
    new: int
    total: int
    num_heads: int
    kv_num_heads: int
    storage: Storage
    block_size: int = 0
    wanted: float | None = None
    head_size: int = 128

    def __str__(self) -> str:
        kind = f"prefill S={self.new}" if self.new > 1 else f"decode T={self.total}"
        paged = f" blocks of {self.block_size}" if self.block_size else ""
        return f"{kind} {self.num_heads}/{self.kv_num_heads} {self.storage}{paged}"

    @property
    def num_bytes(self) -> int:
        """Bytes that must be moved: the cached K and V once, the new rows of Q, K, V and the output."""
        cached = 2 * self.total * self.kv_num_heads * self.head_size * BITS[self.storage] // 8
        return cached + 2 * self.new * (self.num_heads + self.kv_num_heads) * self.head_size * F32_BYTES

    @property
    def num_operations(self) -> int:
        """Multiplications and additions of Q.K and P.V over the keys that the causal mask admits."""
        past = self.total - self.new
        keys = self.new * past + self.new * (self.new + 1) // 2
        return 4 * self.num_heads * self.head_size * keys


def shapes(parts: tuple[Part, ...], *, quick: bool) -> Iterator[CpuShape]:
    """Those of `parts`, or the main ones of them."""
    makers = {"decode": _decode, "paged": _paged, "split": _split, "prefill": _prefill, "call": _call}
    for part in parts:
        made = list(makers[part]())
        yield from made[:: len(made) - 1 or 1] if quick else made


def _decode() -> Iterator[CpuShape]:
    wanted = {"float32": 1.2, "int8": 3.0, "int4": 4.0}
    for total in (512, 2048, 8192):
        for storage in BITS:
            yield CpuShape("decode", 1, total, 16, 8, storage, wanted=wanted[storage.split()[0]])
        for storage in BITS:
            yield CpuShape("decode", 1, total, 4, 4, storage, wanted=1.7 if storage.startswith("int8") else None)


def _paged() -> Iterator[CpuShape]:
    for total in (512, 2048, 8192):
        for storage in ("int8", "int4", "float32"):
            for block_size in (16, 256):
                yield CpuShape("paged", 1, total, 16, 8, storage, block_size=block_size, wanted=1 / 1.15)


def _split() -> Iterator[CpuShape]:
    yield CpuShape("split", 1, 8192, 4, 4, "int8", wanted=1.7)


def _prefill() -> Iterator[CpuShape]:
    for rows in (512, 1024, 2048, 4096):
        for storage, wanted in (("int8", 7.0), ("int4", 7.0), ("float32", 1.4)):
            yield CpuShape("prefill", rows, rows, 16, 8, storage, wanted=wanted)  # type: ignore[arg-type]


def _call() -> Iterator[CpuShape]:
    yield CpuShape("call", 1, 1, 16, 8, "int8")
