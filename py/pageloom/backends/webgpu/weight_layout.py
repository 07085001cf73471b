"""How weights lie on the device: pure arithmetic, no device.

A weight matrix `[rows, columns]` is stored row by row in *chunks* of 32 columns (the last one padded with zeros), its
codes in one buffer and its scales, where it has any, in another. `wgsl/linear/weights.wgsl.j2` reads the same layout.

| codes | words a chunk | one chunk |
|---|---|---|
| q4 | 4 | byte b of the 16: column b in its low nibble, column b + 16 in its high one |
| q8 | 8 | byte b of the 32: column b |
| f16, bf16 | 16 | two columns a word, the first in the lower half |
| f32 | 32 | a column a word |

A quantised weight is worth `scale * (code - zero)` with the encoding's `zero`, or `scale * code + minimum`:

| scales | words a group | one group |
|---|---|---|
| none | 0 | the codes are the values |
| scale | 1 | scale as f32 |
| half_pair | 1 | scale and minimum as f16, scale in the lower half |
| pair | 2 | scale and minimum as f32 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pageloom.backends.webgpu.device import AdapterClass, DeviceInfo
from pageloom.errors import NotSupported
from pageloom.model.gguf import TensorInfo

CHUNK = 32
SHARD_ROWS = 64
"""Shards hold a multiple of this many rows where their size allows, so that tiles of rows do not straddle two."""

Codes = Literal["q4", "q8", "f16", "bf16", "f32"]
Scales = Literal["none", "scale", "half_pair", "pair"]

CODE_WORDS: dict[Codes, int] = {"q4": 4, "q8": 8, "f16": 16, "bf16": 16, "f32": 32}
SCALE_WORDS: dict[Scales, int] = {"none": 0, "scale": 1, "half_pair": 1, "pair": 2}


@dataclass(frozen=True, slots=True)
class Encoding:
    """What one chunk of weights is made of.

    `zero` is the code of the value 0 where there is a scale alone (else 0). `group` columns share a scale: 16 or 32.
    """

    codes: Codes
    scales: Scales = "none"
    zero: int = 0
    group: int = CHUNK

    @property
    def chunk_code_bytes(self) -> int:
        return 4 * CODE_WORDS[self.codes]

    @property
    def chunk_scale_bytes(self) -> int:
        return 4 * SCALE_WORDS[self.scales] * CHUNK // self.group


ENCODINGS = {
    "F32": Encoding("f32"),
    "F16": Encoding("f16"),
    "BF16": Encoding("bf16"),
    "Q4_0": Encoding("q4", "scale", 8),
    "Q4_1": Encoding("q4", "half_pair"),
    "Q5_0": Encoding("q8", "scale", 16),
    "Q5_1": Encoding("q8", "half_pair"),
    "Q8_0": Encoding("q8", "scale", 128),
    "Q4_K": Encoding("q4", "pair"),
    "Q5_K": Encoding("q8", "pair"),
    "Q6_K": Encoding("q8", "scale", 32, 16),
}
"""The smallest encoding that holds a GGUF format exactly (products of its scales are exact in f32)."""


def common_encoding(formats: Sequence[str], *, unpack_halves: bool = False) -> Encoding:
    """The smallest encoding that holds every one of `formats` (GGUF names); a mixture with floats becomes f32.

    `unpack_halves` keeps pairs of scale and minimum as f32, for devices that unpack f16 slowly.
    """
    found = {ENCODINGS[name] for name in formats}
    if any(encoding.scales == "none" for encoding in found):
        return found.pop() if len(found) == 1 else Encoding("f32")
    kinds = {encoding.scales for encoding in found}
    scales = kinds.pop() if len(kinds) == 1 else "pair"
    if scales == "half_pair" and unpack_halves:
        scales = "pair"
    return Encoding(
        codes="q8" if any(encoding.codes == "q8" for encoding in found) else "q4",
        scales=scales,
        zero=max(encoding.zero for encoding in found) if scales == "scale" else 0,
        group=min(encoding.group for encoding in found),
    )


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """One matrix `[rows, columns]` in one encoding. Sizes are in bytes."""

    rows: int
    columns: int
    encoding: Encoding

    @property
    def chunks(self) -> int:
        """Chunks a row."""
        return -(-self.columns // CHUNK)

    @property
    def row_code_bytes(self) -> int:
        return self.chunks * self.encoding.chunk_code_bytes

    @property
    def row_scale_bytes(self) -> int:
        return self.chunks * self.encoding.chunk_scale_bytes

    @property
    def bytes(self) -> int:
        """Device memory that the weight takes, over all its shards."""
        return self.rows * (self.row_code_bytes + self.row_scale_bytes)

    def shards(self, info: DeviceInfo) -> tuple[range, ...]:
        """The rows of each shard: all in one where they fit a binding, else whole tiles or at least pairs of rows.

        Raises `NotSupported` where not even two rows fit.
        """
        limit = binding_limit(info)
        most = limit // max(self.row_code_bytes, self.row_scale_bytes)
        if most >= self.rows:
            return (range(self.rows),)
        most -= most % (SHARD_ROWS if most >= SHARD_ROWS else 2)
        if not most:
            raise NotSupported(
                f"two rows of {self.columns} {self.encoding.codes} weights take {2 * self.row_code_bytes} bytes; "
                f"this device binds at most {limit} bytes"
            )
        return tuple(range(first, min(first + most, self.rows)) for first in range(0, self.rows, most))


def describe_weight(tensors: Sequence[TensorInfo], adapter_class: AdapterClass = "gpu") -> WeightLayout:
    """The layout of the matrix of the rows of `tensors` (`[rows, columns]` each), known before anything is allocated.

    Adapters that compute on a CPU get their scales as f32: `unpack2x16float` takes them dozens of instructions, and a
    product with one token a fifth longer.


    Raises `NotSupported` for tensors that make no matrix, and for a number of columns that is no multiple of 4.
    """
    columns = {tensor.shape[-1] for tensor in tensors}
    if len(columns) != 1 or any(len(tensor.shape) != 2 for tensor in tensors):
        shapes = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in tensors)
        raise NotSupported(f"weights joined by rows must be matrices of one width; given: {shapes}")
    width = columns.pop()
    if width % 4:
        raise NotSupported(
            f"{tensors[0].name} has rows of {width} elements; a multiple of 4 is needed", param=tensors[0].name
        )
    rows = sum(tensor.shape[0] for tensor in tensors)
    formats = [tensor.format.name for tensor in tensors]
    return WeightLayout(rows, width, common_encoding(formats, unpack_halves=adapter_class == "software"))


def binding_limit(info: DeviceInfo) -> int:
    """The largest storage buffer that a shader can be given, in bytes, rounded down to whole words."""
    return min(info.limits["maxStorageBufferBindingSize"], info.limits["maxBufferSize"]) & ~3
