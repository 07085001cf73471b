"""The reader against the `gguf` package, and against files that are wrong on purpose."""

from __future__ import annotations

import random
import struct
import tracemalloc
from array import array
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest

from pageloom.errors import BadModelFile
from pageloom.model import gguf_header
from pageloom.model.gguf import read_gguf, read_tensor
from pageloom.model.source import BytesSource, FileSource, check_range
from tests import gguf_bytes as g


class SparseSource:
    """A huge file: `parts` by offset, zeros elsewhere. Remembers the ranges read."""

    def __init__(self, parts: dict[int, bytes], size: int) -> None:
        self._parts = parts
        self.size = size
        self.reads: list[tuple[int, int]] = []

    async def read(self, offset: int, length: int) -> bytes:
        check_range(offset, length, self.size)
        self.reads.append((offset, length))
        data = bytearray(length)
        for start, part in self._parts.items():
            first, last = max(start, offset), min(start + len(part), offset + length)
            if first < last:
                data[first - offset : last - offset] = part[first - start : last - start]
        return bytes(data)


async def parse(data: bytes):
    return await read_gguf(BytesSource(data))


TENSOR = g.tensor_info("t", [8])
"""Eight floats at offset 0: 32 bytes."""


def with_tensor(info: bytes, data_bytes: int = 64) -> bytes:
    return g.pad(g.header([], [info])) + bytes(data_bytes)


async def test_agrees_with_the_gguf_package_on_a_whole_model(smollm2_path: Path) -> None:
    with FileSource(smollm2_path) as source:
        ours = await read_gguf(source)
    theirs = gguf.GGUFReader(smollm2_path)
    values = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata.keys() == values.keys()
    for name, value in ours.metadata.items():
        assert (list(value) if isinstance(value, array) else value) == values[name], name
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(int(extent) for extent in reversed(tensor.shape))
        assert (info.format.type_id, info.offset, info.size) == (tensor.tensor_type, tensor.data_offset, tensor.n_bytes)


async def test_reads_every_value_type_that_the_gguf_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    scalars = {
        "uint8": 255, "int8": -128, "uint16": 65535, "int16": -32768, "uint32": 2**32 - 1, "int32": -(2**31),
        "uint64": 2**64 - 1, "int64": -(2**63), "float32": 0.5, "float64": 1e-300, "bool": True, "string": "é€😀",
    }  # fmt: skip
    for name, value in scalars.items():
        getattr(writer, f"add_{name}")(name, value)
    writer.add_array("integers", [1, 2, 3])
    writer.add_array("floats", [0.25, -2.0])
    writer.add_array("flags", [True, False])
    writer.add_array("texts", ["", "a", "ß"])
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_tensor("matrix", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with FileSource(path) as source:
        file = await read_gguf(source)
        assert list(await read_tensor(source, file.tensors["matrix"])) == list(range(12))
    assert {name: file.metadata[name] for name in scalars} == scalars
    assert list(file.metadata["integers"]) == [1, 2, 3]
    assert list(file.metadata["floats"]) == [0.25, -2.0]
    assert file.metadata["flags"] == [True, False]
    assert file.metadata["texts"] == ["", "a", "ß"]
    assert [list(inner) for inner in file.metadata["nested"]] == [[1, 2], [3]]
    assert file.tensors["matrix"].shape == (3, 4)


def too_long(kind: int, element: int, count: int) -> bytes:
    return g.string("k") + struct.pack("<IIQ", kind, element, count)


DEEP = g.value(g.ARRAY, (g.U8, []))
for _ in range(8):
    DEEP = struct.pack("<IQ", g.ARRAY, 1) + DEEP

HOSTILE = {
    "empty file": (b"", "magic"),
    "not a GGUF file": (b"PK\x03\x04" + bytes(60), "magic"),
    "version 1": (g.header(version=1), "version"),
    "version of the future": (g.header(version=4), "version"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
    "more tensors than bytes": (g.header(info_count=2**61), "tensor_count"),
    "more pairs than bytes": (g.header(pair_count=2**61), "metadata_kv_count"),
    "key beyond the end": (g.header([struct.pack("<Q", 200) + b"k" * 20]), "metadata key 0"),
    "key of a gibibyte": (g.header([struct.pack("<Q", 2**30) + b"k" * 130]), "metadata key 0"),
    "empty key": (g.header([g.key_value("", g.U8, 1)]), ""),
    "duplicate key": (g.header([g.key_value("k", g.U8, 1)] * 2), "k"),
    "key that is not UTF-8": (g.header([g.key_value(b"\xff", g.U8, 1)]), "metadata key 0"),
    "value type 13": (g.header([g.string("k") + struct.pack("<IQ", 13, 0)]), "k"),
    "bool of 2": (g.header([g.key_value("k", g.BOOL, 2)]), "k"),
    "string of a gibibyte": (g.header([g.string("k") + struct.pack("<IQ", g.STRING, 2**30)]) + bytes(100), "k"),
    "string of 2**64 - 1": (g.header([g.string("k") + struct.pack("<IQ", g.STRING, 2**64 - 1)]) + bytes(100), "k"),
    "string that is not UTF-8": (g.header([g.key_value("k", g.STRING, b"\xc3(")]), "k"),
    "array whose size wraps 64 bits": (g.header([too_long(g.ARRAY, g.U64, 2**61)]) + bytes(100), "k"),
    "array of strings beyond the end": (g.header([too_long(g.ARRAY, g.STRING, 2**20)]) + bytes(100), "k"),
    "array of arrays beyond the end": (g.header([too_long(g.ARRAY, g.ARRAY, 2**20)]) + bytes(100), "k"),
    "array of value type 99": (g.header([too_long(g.ARRAY, 99, 1)]) + bytes(100), "k"),
    "string in an array beyond the end": (
        g.header([too_long(g.ARRAY, g.STRING, 1) + struct.pack("<Q", 2**40)]) + bytes(100),
        "k",
    ),
    "string in an array that is not UTF-8": (g.header([g.key_value("k", g.ARRAY, (g.STRING, [b"a", b"\xff"]))]), "k"),
    "arrays nested too deep": (g.header([g.string("k") + struct.pack("<I", g.ARRAY) + DEEP]), "k"),
    "alignment 0": (g.header([g.key_value("general.alignment", g.U32, 0)]), "general.alignment"),
    "alignment 3": (g.header([g.key_value("general.alignment", g.U32, 3)]), "general.alignment"),
    "alignment -1": (g.header([g.key_value("general.alignment", g.U32, 2**32 - 1)]), "general.alignment"),
    "alignment 2**30": (g.header([g.key_value("general.alignment", g.U32, 2**30)]), "general.alignment"),
    "alignment of another type": (g.header([g.key_value("general.alignment", g.STRING, "32")]), "general.alignment"),
    "second part of a split model": (
        g.header([g.key_value("split.count", g.U16, 3), g.key_value("split.no", g.U16, 1)]),
        "split.count",
    ),
    "no dimension": (with_tensor(g.tensor_info("t", [])), "t"),
    "nine dimensions": (with_tensor(g.tensor_info("t", [1] * 9)), "t"),
    "2**32 - 1 dimensions": (g.header([], [g.string("t") + struct.pack("<I", 2**32 - 1)]) + bytes(64), "t"),
    "dimension of 0": (with_tensor(g.tensor_info("t", [8, 0])), "t"),
    "dimensions whose product wraps": (with_tensor(g.tensor_info("t", [2**40, 2**40])), "t"),
    "unknown tensor type": (with_tensor(g.tensor_info("t", [8], type_id=77)), "t"),
    "rows of half a block": (with_tensor(g.tensor_info("t", [48], type_id=8)), "t"),
    "offset between alignments": (with_tensor(g.tensor_info("t", [8], offset=16)), "t"),
    "tensor beyond the end": (with_tensor(g.tensor_info("t", [8], offset=64)), "t"),
    "offset of 2**63": (with_tensor(g.tensor_info("t", [8], offset=2**63)), "t"),
    "file that ends after the tensor table": (g.header([], [TENSOR]), "t"),
    "two tensors of one name": (g.pad(g.header([], [TENSOR, g.tensor_info("t", [8], offset=32)])) + bytes(64), "t"),
    "overlapping tensors": (
        g.pad(g.header([], [g.tensor_info("a", [16]), g.tensor_info("b", [8], offset=32)])) + bytes(64),
        "b",
    ),
    "name of 65 bytes": (with_tensor(g.tensor_info("n" * 65, [8])), "name of tensor 0"),
}  # fmt: skip


async def test_a_file_of_another_kind_is_told_by_its_first_bytes() -> None:
    with pytest.raises(BadModelFile, match="first four bytes are 50 4b 03 04, and 47 47 55 46 are GGUF's"):
        await parse(b"PK\x03\x04" + bytes(60))


@pytest.mark.parametrize("case", HOSTILE)
async def test_refuses_by_field_name_and_allocates_little(case: str) -> None:
    data, field = HOSTILE[case]
    tracemalloc.start()
    with pytest.raises(BadModelFile) as caught:
        await parse(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert caught.value.param is not None
    assert caught.value.param.startswith(field)


async def test_says_which_part_of_a_split_model_comes_first() -> None:
    with pytest.raises(BadModelFile, match=r"part 2 of a model split into 3; .*-00001-of-00003\.gguf"):
        await parse(HOSTILE["second part of a split model"][0])


async def test_names_an_unknown_tensor_type_by_its_number() -> None:
    with pytest.raises(BadModelFile, match="ggml type 77"):
        await parse(HOSTILE["unknown tensor type"][0])


async def test_calls_big_endian_by_its_name() -> None:
    with pytest.raises(BadModelFile, match="big-endian"):
        await parse(HOSTILE["big-endian"][0])


SMALL = g.model(
    [g.key_value("a", g.ARRAY, (g.STRING, ["x", "yy"])), g.key_value("b", g.F32, 1.5)],
    {"first": ([2, 8], 0, struct.pack("<16f", *range(16))), "second": ([32], 8, bytes(34))},
)


async def test_every_truncation_is_a_bad_model_file() -> None:
    needed = SMALL.rstrip(b"\0") + bytes(34)  # the last tensor is 34 zeros; its padding may be missing
    for length in range(len(needed)):
        with pytest.raises(BadModelFile):
            await parse(needed[:length])
    await parse(needed)


async def test_no_damaged_byte_raises_anything_but_bad_model_file() -> None:
    rng = random.Random(1)
    table_end = SMALL.index(b"second") + 40
    refused = 0
    for _ in range(3000):
        damaged = bytearray(SMALL)
        damaged[rng.randrange(table_end)] = rng.randrange(256)
        try:
            await parse(bytes(damaged))
        except BadModelFile:
            refused += 1
    assert refused > 1000


async def test_ignores_bytes_after_the_last_tensor() -> None:
    assert (await parse(SMALL + bytes(64))).tensors == (await parse(SMALL)).tensors


async def test_a_first_tensor_at_offset_0_is_a_tensor() -> None:
    tensor = (await parse(SMALL)).tensors["first"]
    assert list(await read_tensor(BytesSource(SMALL), tensor)) == list(range(16))


async def test_takes_an_alignment_that_is_no_power_of_two() -> None:
    data = g.model(
        [g.key_value("general.alignment", g.U32, 24)], {"t": ([2], 0, struct.pack("<2f", 3, 4))}, alignment=24
    )
    file = await parse(data)
    assert file.tensors["t"].offset % 24 == 0
    assert list(await read_tensor(BytesSource(data), file.tensors["t"])) == [3, 4]


async def test_reads_version_2_like_version_3() -> None:
    file = await parse(SMALL.replace(struct.pack("<I", 3), struct.pack("<I", 2), 1))
    assert file.version == 2
    assert file.metadata == (await parse(SMALL)).metadata


async def test_follows_offsets_past_4_gib() -> None:
    offset = 5 * 2**30 + 32
    head = g.pad(g.header([], [g.tensor_info("near", [8]), g.tensor_info("far", [2], offset=offset)]))
    source = SparseSource({0: head, len(head) + offset: struct.pack("<2f", 7, 8)}, size=6 * 2**30)
    far = (await read_gguf(source)).tensors["far"]
    assert far.offset == len(head) + offset
    assert list(await read_tensor(source, far)) == [7, 8]


async def test_reads_the_header_alone_in_growing_ranges() -> None:
    texts = [f"token {number}" for number in range(60_000)]
    head = g.header([g.key_value("texts", g.ARRAY, (g.STRING, texts))], [g.tensor_info("t", [2**28])])
    source = SparseSource({0: head}, size=len(head) + 2**31)
    file = await read_gguf(source)
    assert file.metadata["texts"] == texts
    ends = [offset + length for offset, length in source.reads]
    assert [offset for offset, _ in source.reads] == [0, *ends[:-1]]
    lengths = [length for _, length in source.reads]
    assert lengths[0] == gguf_header.FIRST_READ
    assert all(later > 1.9 * earlier for earlier, later in pairwise(lengths))
    assert max(lengths) <= gguf_header.LARGEST_READ
    assert ends[-1] < len(head) + gguf_header.LARGEST_READ


@pytest.mark.parametrize("first_read", range(1, 40))
async def test_a_value_may_lie_across_any_two_reads(first_read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "FIRST_READ", first_read)
    monkeypatch.setattr(gguf_header, "LARGEST_READ", first_read)
    assert await parse(SMALL) == await read_gguf(BytesSource(SMALL))
    assert (await parse(SMALL)).metadata["a"] == ["x", "yy"]
