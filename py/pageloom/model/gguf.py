"""The GGUF container, versions 2 and 3, little-endian: metadata and the tensor table. No tensor data is read.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
from array import array
from dataclasses import dataclass

from pageloom.errors import BadModelFile
from pageloom.model.gguf_header import U32, HeaderReader
from pageloom.model.metadata import Metadata
from pageloom.model.quantization import FORMATS, BlockFormat, dequantize
from pageloom.model.source import RangedSource

MAX_DIMENSIONS = 4
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 64
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 65536
_SMALLEST_KEY_VALUE = 13
_SMALLEST_TENSOR_INFO = 32


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is row-major (`[out_features, in_features]` for a linear weight)."""

    name: str
    shape: tuple[int, ...]
    format: BlockFormat
    offset: int
    """Absolute, in bytes from the start of the source."""
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF file says about itself."""

    version: int
    alignment: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]


async def read_gguf(source: RangedSource) -> GgufFile:
    """The metadata and tensor table of `source`, read in growing ranges from its start.

    `general.alignment` may be any multiple of 8 up to 65,536 (the format asks for no more; some readers want a power of
    two). Bytes after the last tensor are ignored. Raises `BadModelFile`, naming the field, for anything else that
    breaks the format, for a big-endian file and for one part of a split model.
    """
    reader = HeaderReader(source)
    version = await _read_version(reader)
    tensor_count = await reader.u64("tensor_count")
    reader.check_count(tensor_count, _SMALLEST_TENSOR_INFO, "tensor_count")
    key_count = await reader.u64("metadata_kv_count")
    reader.check_count(key_count, _SMALLEST_KEY_VALUE, "metadata_kv_count")
    metadata = await _read_metadata(reader, key_count)
    _refuse_split(metadata)
    alignment = _alignment(metadata)
    relative = [await _read_tensor_info(reader, index) for index in range(tensor_count)]
    data_start = -(-reader.position // alignment) * alignment
    return GgufFile(version, alignment, metadata, _place_tensors(relative, data_start, alignment, source.size))


async def read_tensor(source: RangedSource, tensor: TensorInfo) -> array[float]:
    """The values of a small tensor as float32, through the Python heap."""
    return dequantize(tensor.format, await source.read(tensor.offset, tensor.size))


async def _read_version(reader: HeaderReader) -> int:
    magic = await reader.raw(4, "magic")
    if magic != b"GGUF":
        raise BadModelFile(
            f"not a GGUF file: its first four bytes are {magic.hex(' ')}, and {b'GGUF'.hex(' ')} are GGUF's",
            param="magic",
        )
    version = await reader.u32("version")
    if version in (2, 3):
        return version
    if int.from_bytes(U32.pack(version), "big") in (1, 2, 3):
        raise BadModelFile("this is a big-endian GGUF file; only little-endian files are read", param="version")
    raise BadModelFile(f"GGUF version {version}; versions 2 and 3 are read: convert the model again", param="version")


async def _read_metadata(reader: HeaderReader, count: int) -> Metadata:
    metadata = Metadata()
    for index in range(count):
        key = await reader.string(f"metadata key {index}", MAX_KEY_BYTES)
        if not key or key in metadata:
            raise BadModelFile(f"metadata key {index} ({key!r}) is {'a duplicate' if key else 'empty'}", param=key)
        metadata[key] = await reader.value(await reader.u32(key), key)
    return metadata


def _refuse_split(metadata: Metadata) -> None:
    parts = metadata.integer("split.count", 1)
    if parts <= 1:
        return
    number = metadata.integer("split.no", 0) + 1
    raise BadModelFile(
        f"this is part {number} of a model split into {parts}; the first part is the file named "
        f"*-00001-of-{parts:05d}.gguf. Merge the parts from that one (llama-gguf-split --merge) and open the result",
        param="split.count",
    )


def _alignment(metadata: Metadata) -> int:
    key = "general.alignment"
    alignment = metadata.integer(key, DEFAULT_ALIGNMENT, minimum=8, maximum=MAX_ALIGNMENT)
    if alignment % 8:
        raise BadModelFile(f"{key} is {alignment}; it must be a multiple of 8", param=key)
    return alignment


async def _read_tensor_info(reader: HeaderReader, index: int) -> TensorInfo:
    """A tensor with its offset still relative to the data section."""
    name = await reader.string(f"name of tensor {index}", MAX_NAME_BYTES)
    rank = await reader.u32(f"{name}: n_dims")
    if not 1 <= rank <= MAX_DIMENSIONS:
        raise BadModelFile(f"{name}: n_dims is {rank}; 1 to {MAX_DIMENSIONS} are allowed", param=name)
    shape = tuple([await reader.u64(f"{name}: dimension {axis}") for axis in range(rank)][::-1])
    if 0 in shape:
        raise BadModelFile(f"{name}: the shape {list(shape)} has a dimension of 0", param=name)
    type_id = await reader.u32(f"{name}: type")
    if type_id not in FORMATS:
        known = ", ".join(f"{known.name} ({number})" for number, known in FORMATS.items())
        raise BadModelFile(f"{name} has the ggml type {type_id}, which is not read; read are {known}", param=name)
    block = FORMATS[type_id]
    if shape[-1] % block.elements:
        raise BadModelFile(
            f"{name}: rows of {shape[-1]} elements do not divide into {block.name} blocks of {block.elements}",
            param=name,
        )
    size = block.bytes
    for extent in (*shape[:-1], shape[-1] // block.elements):
        size *= extent
    return TensorInfo(name, shape, block, await reader.u64(f"{name}: offset"), size)


def _place_tensors(relative: list[TensorInfo], start: int, alignment: int, file_size: int) -> dict[str, TensorInfo]:
    """The tensors by name, with absolute offsets; none overlaps another or leaves the file."""
    tensors: dict[str, TensorInfo] = {}
    for info in relative:
        if info.name in tensors:
            raise BadModelFile(f"two tensors are named {info.name!r}", param=info.name)
        if info.offset % alignment:
            raise BadModelFile(f"{info.name}: offset {info.offset} is no multiple of {alignment}", param=info.name)
        offset = start + info.offset
        if offset + info.size > file_size:
            raise BadModelFile(
                f"{info.name}: bytes {offset} to {offset + info.size} lie beyond the end of the file "
                f"({file_size} bytes); it was probably cut short: fetch it again",
                param=info.name,
            )
        tensors[info.name] = TensorInfo(info.name, info.shape, info.format, offset, info.size)
    ordered = sorted(tensors.values(), key=lambda info: info.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.size > after.offset:
            raise BadModelFile(f"the tensors {before.name} and {after.name} overlap", param=after.name)
    return tensors
