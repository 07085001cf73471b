"""Repacking on the device: bytes of a GGUF tensor become chunks of `weight_layout`."""

from __future__ import annotations

import array
from dataclasses import dataclass

from pageloom.backends.webgpu.limits import split_grid
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.backends.webgpu.weight_layout import Encoding

TEMPLATE = "repack/repack.wgsl.j2"
WORKGROUP_SIZE = 64


@dataclass(frozen=True, slots=True)
class Placement:
    """Row r of a piece of `num_rows` rows of `row_bytes` bytes becomes row `first_row + r * row_step` of its target."""

    num_rows: int
    row_bytes: int
    chunks: int
    first_row: int
    row_step: int

    def words(self) -> array.array[int]:
        """The program's parameters, one u32 each."""
        return array.array("I", (self.num_rows, self.row_bytes, self.chunks, self.first_row, self.row_step))

    def grid(self) -> tuple[int, int, int]:
        return split_grid(-(-self.num_rows * self.chunks // WORKGROUP_SIZE))


def repack_key(source: str, target: Encoding) -> ProgramKey:
    """The program from the GGUF format `source` to `target`; its buffers: raw bytes, placement, a word that is set
    where a number is not finite, codes, any scales."""
    return ProgramKey.of(
        TEMPLATE, source=source, codes=target.codes, scales=target.scales, zero=target.zero, group=target.group
    )
