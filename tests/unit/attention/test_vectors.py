"""Cases written to files and read back, with numpy and without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import pageloom
from pageloom.attention.cases.case import Case
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_array, as_tensors
from pageloom.attention.tensors import Tensor, TensorInfo
from pageloom.attention.vectors import read_safetensors, read_vector, write_safetensors, write_vector
from pageloom.errors import InvalidArgument

NAMES = (
    "paged/all_together/ragged",
    "paged/int4/per_channel/decode",
    "paged/float8e4m3fn/per_tensor/decode",
    "paged/bfloat16/decode_64",
    "group_query/ragged/chunks",
    "onnx/mask/bool_full",
    "scatter/no_indices",
)
CASES = [case for case in all_cases(quick=True) if case.name in NAMES]


def test_every_named_case_is_there() -> None:
    assert {case.name for case in CASES} == set(NAMES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_vector_reads_back_as_it_was_written(case: Case) -> None:
    vector = case.vector()
    read = read_vector(write_vector(vector))
    assert (read.name, read.operator, read.spec, read.needs, read.guards) == (
        case.name, case.operator, case.spec, case.needs, case.guards,
    )  # fmt: skip
    assert read.inputs.keys() == vector.inputs.keys()
    for name, array in case.inputs().items():
        got = as_array(read.inputs[name])
        assert got.dtype == array.dtype
        assert got.tobytes() == array.tobytes()
    assert {name: want.optional for name, want in read.expected.items()} == {
        name: want.optional for name, want in vector.expected.items()
    }
    assert read.compare({name: want.values for name, want in vector.expected.items()}).passed


def test_the_safetensors_package_reads_what_is_written_and_writes_what_is_read() -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float16).reshape(2, 3),
        "b": np.array([1, -2], np.int64),
        "c": np.zeros((0, 4), np.int8),
    }
    theirs = safetensors.numpy.load(write_safetensors(as_tensors(arrays), {"note": "x"}))
    ours, metadata = read_safetensors(safetensors.numpy.save(arrays, {"note": "x"}))
    assert metadata == {"note": "x"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(as_array(ours[name]), array)


def header(entries: object, body: bytes = b"", *, length: int | None = None) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "a header of 0 bytes is promised in a file of 0"),
        (header({}, length=2**60), "is promised in a file of 10"),
        (header(b"[1"), "no safetensors header"),
        (header([1, 2]), "no safetensors header"),
        (header({"a": {"dtype": "F16"}}), "no safetensors header"),
        (header({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}, b"x"), "element type F4"),
        (header({"a": {"dtype": "I8", "shape": [2], "data_offsets": [0, 1]}}, b"x"), "takes 2 bytes"),
        (header({"a": {"dtype": "I8", "shape": [1], "data_offsets": [1, 2]}}, b"x"), "offsets 1 to 2 of 1"),
        (header({"a": {"dtype": "I8", "shape": [-1], "data_offsets": [1, 0]}}, b"x"), "takes -1 bytes"),
    ],
)
def test_bytes_that_are_no_file_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_safetensors(data)
    assert words in caught.value.message


def test_tensors_without_a_case_are_refused() -> None:
    tensor = Tensor(TensorInfo("int8", (1,)), memoryview(b"\1"))
    with pytest.raises(InvalidArgument, match="no conformance case"):
        read_vector(write_safetensors({"in.query": tensor}, {}))


def test_a_vector_is_read_and_judged_where_there_is_no_numpy(tmp_path: Path) -> None:
    path = tmp_path / "case.safetensors"
    path.write_bytes(write_vector(CASES[0].vector()))
    program = f"""
import sys
for name in ("numpy", "ml_dtypes"):
    sys.modules[name] = None
import pageloom.attention.group_query.check, pageloom.attention.onnx.check, pageloom.attention.scatter.spec
import pageloom.attention.paged.host_values
from pageloom.attention.vectors import read_vector
vector = read_vector(open({str(path)!r}, "rb").read())
outputs = {{name: want.values for name, want in vector.expected.items()}}
assert vector.compare(outputs).passed
outputs["output"] = vector.inputs["query"]
assert not vector.compare(outputs).passed
print(vector.name)
"""
    package = str(Path(pageloom.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": package}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == CASES[0].name
