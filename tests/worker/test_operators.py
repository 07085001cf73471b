"""An operator called over HTTP gives what it gives in the process, to the bit; what is no call is refused by name."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import httpx
import pytest
from safetensors.numpy import load

from pageloom.attention.cases.case import Case, Operator
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.numerics.dtypes import as_tensor
from pageloom.attention.tensors import Tensor, TensorInfo
from pageloom.attention.vectors import Vector, read_safetensors, write_safetensors
from pageloom.backends.cpu.operators import CpuOperators
from pageloom.backends.webgpu.native import open_native_device
from pageloom.backends.webgpu.operators import WebGpuOperators
from pageloom.conformance.members import DEVICE_VALUES
from pageloom.worker.backends import ALL_OPERATORS
from tests.native.software_drivers import driver_manifest

PATH = "/v1/ops/paged_attention"
EVERY = {"paged_attention": 12, "group_query_attention": 25, "onnx_attention": 25, "tensor_scatter": 10}
"""Of the quick cases, one in so many runs here; `pageloom check` runs them all."""


def some_cases(operator: Operator) -> list[Case]:
    cases = all_cases(operator=operator, quick=True)
    return [case for case in cases if not case.needs & DEVICE_VALUES][:: EVERY[operator]]


pytestmark = pytest.mark.parametrize("worker", ["webgpu"], indirect=True, scope="session")
"""One worker is enough: each runs operators on every backend."""
PAGED = some_cases("paged_attention")
OTHERS = [case for name in ALL_OPERATORS[1:] for case in some_cases(name)]


@pytest.fixture(scope="module")
def webgpu() -> Iterator[WebGpuOperators]:
    """The operators in this process, on the adapter that the worker has."""
    adapter = "SwiftShader" if driver_manifest("swiftshader") else "llvmpipe"
    device = asyncio.run(open_native_device(adapter=adapter))
    yield WebGpuOperators(device)
    device.close()


@pytest.fixture(scope="module")
def cpu() -> CpuOperators:
    return CpuOperators()


def attributes(vector: Vector) -> str:
    return json.dumps({field.name: getattr(vector.spec, field.name) for field in fields(vector.spec)})


def call(http: httpx.Client, vector: Vector, **metadata: str) -> httpx.Response:
    body = write_safetensors(vector.inputs, {"spec": attributes(vector), **metadata})
    return http.post(f"/v1/ops/{vector.operator}", content=body)


def options(vector: Vector) -> dict[str, Any]:
    """The keywords that ask for every output that is expected."""
    wanted: dict[str, dict[str, Any]] = {
        "paged_attention": {"log_sum_exp": True},
        "onnx_attention": {"outputs": [name for name in vector.expected if name != "Y"]},
    }
    return wanted.get(vector.operator, {})


def check(http: httpx.Client, vector: Vector, backend: str, operator: Any) -> None:
    """Hold what the worker gives against what is expected, and against `operator` in this process, bit for bit."""
    answer = call(http, vector, backend=backend, **{name: json.dumps(value) for name, value in options(vector).items()})
    assert answer.status_code == 200, answer.text
    outputs, metadata = read_safetensors(answer.content)
    verdict = vector.compare(outputs)
    assert verdict.passed, verdict.where

    def fresh() -> dict[str, Tensor]:
        return {name: Tensor(one.info, memoryview(bytearray(one.data))) for name, one in vector.inputs.items()}

    explained = operator.explain(**fresh(), **options(vector))
    told = {"backend": backend, "tier": explained.tier, "reasons": dict(explained.reasons)}
    assert json.loads(metadata["explain"]) == told
    here = {
        name: one if isinstance(one, Tensor) else as_tensor(one)
        for name, one in operator(**fresh(), **options(vector)).items()
    }
    assert {name: one.data for name, one in outputs.items()} == {name: one.data for name, one in here.items()}


@pytest.mark.parametrize("case", PAGED, ids=lambda case: case.name)
def test_a_case_of_the_matrix_gives_what_the_operator_gives_on_webgpu(
    http: httpx.Client, webgpu: WebGpuOperators, case: Case
) -> None:
    vector = case.vector()
    check(http, vector, "webgpu", webgpu.paged_attention(vector.spec))


@pytest.mark.parametrize("case", PAGED + OTHERS, ids=lambda case: case.name)
def test_a_case_of_the_matrix_gives_what_the_operator_gives_on_the_cpu(
    http: httpx.Client, cpu: CpuOperators, case: Case
) -> None:
    vector = case.vector()
    makers: dict[str, Any] = {
        "paged_attention": cpu.paged_attention,
        "group_query_attention": cpu.group_query_attention,
        "onnx_attention": cpu.attention,
        "tensor_scatter": cpu.tensor_scatter,
    }
    check(http, vector, "cpu", makers[vector.operator](vector.spec))


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed here")
def test_a_backend_that_this_machine_lacks_says_why(http: httpx.Client) -> None:
    answer = call(http, PAGED[0].vector(), backend="cuda")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_supported")
    assert "PyTorch is not installed" in answer.json()["error"]["message"]
    cuda = http.get("/v1/ops").json()["backends"][2]
    assert cuda["backend"] == "cuda"
    assert "PyTorch is not installed" in cuda["why_not"]


@pytest.mark.parametrize("tier", WebGpuOperators.tiers)
def test_a_tier_runs_where_it_is_asked_for(http: httpx.Client, tier: str) -> None:
    answer = call(http, PAGED[0].vector(), tier=tier)
    assert answer.status_code == 200, answer.text
    assert json.loads(read_safetensors(answer.content)[1]["explain"])["tier"] == tier


def test_any_reader_of_safetensors_reads_the_outputs(http: httpx.Client) -> None:
    assert set(load(call(http, PAGED[0].vector()).content)) == {"output", "key_cache_out", "value_cache_out"}


def test_it_says_what_there_is_and_why_not_more(http: httpx.Client) -> None:
    told = http.get("/v1/ops").json()
    assert "paged_attention" in told["operators"]
    webgpu, cpu, _ = told["backends"]
    assert (webgpu["backend"], webgpu["why_not"]) == ("webgpu", None)
    assert "paged_attention" in webgpu["operators"]
    assert (cpu["backend"], cpu["why_not"]) == ("cpu", None)
    assert "tensor_scatter" in cpu["operators"]


def edited(vector: Vector, **inputs: Tensor | None) -> Vector:
    changed = {name: tensor for name, tensor in {**vector.inputs, **inputs}.items() if tensor is not None}
    return Vector(vector.name, vector.operator, vector.spec, vector.needs, vector.guards, changed, vector.expected)


SOME = Tensor(TensorInfo("float32", (1,)), memoryview(bytes(4)))


@pytest.mark.parametrize(
    ("inputs", "metadata", "says"),
    [
        ({"query": None}, {}, "query"),
        ({"colour": SOME}, {}, "colour"),
        ({"self": SOME}, {}, "self"),
        ({"tier": SOME}, {}, "tier"),
        ({"query": SOME}, {}, "query"),
        ({}, {"tier": "fastest"}, "there is no tier 'fastest'"),
        ({}, {"backend": "tpu"}, "there is no backend 'tpu'"),
        ({}, {"log_sum_exp": "yes"}, "log_sum_exp"),
        ({}, {"colour": "red"}, "unknown metadata"),
        ({}, {"spec": "{"}, "not JSON"),
        ({}, {"spec": "[]"}, "a JSON object"),
        ({}, {"spec": "{}"}, "num_heads"),
        ({}, {"spec": '{"num_heads": 2, "kv_num_heads": 1, "colour": 1}'}, "colour"),
        ({}, {"spec": '{"num_heads": 3, "kv_num_heads": 2}'}, "num_heads"),
        ({}, {"spec": '{"num_heads": "2", "kv_num_heads": 1}'}, "num_heads"),
    ],
)
def test_a_call_that_breaks_the_contract_is_refused_in_words(
    http: httpx.Client, inputs: dict[str, Any], metadata: dict[str, str], says: str
) -> None:
    answer = call(http, edited(PAGED[0].vector(), **inputs), **metadata)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_argument"
    assert says in answer.json()["error"]["message"]


def header(entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00" * 7,
        (2**63).to_bytes(8, "little") + b"{}",
        (100).to_bytes(8, "little") + b"{}",
        header([]),
        header({"a": 1}),
        header({"a": {**F32, "dtype": "F3"}}) + bytes(4),
        header({"a": {**F32, "dtype": ["F32"]}}) + bytes(4),
        header({"a": {**F32, "shape": [-1, -1]}}) + bytes(4),
        header({"a": {**F32, "shape": [2**40, 2**40]}}) + bytes(4),
        header({"a": {**F32, "data_offsets": [4, 0]}}) + bytes(4),
        header({"a": {**F32, "data_offsets": ["0", "4"]}}) + bytes(4),
        header({"a": {**F32, "data_offsets": [0, 8]}}) + bytes(4),
        header({"a": F32, "b": F32}) + bytes(4),
        header({"a": F32}) + bytes(400),
        header({"__metadata__": {"spec": 1}}),
        header({"__metadata__": [], "a": F32}) + bytes(4),
        b"\xff" * 4096,
    ],
)
def test_bytes_that_are_no_safetensors_are_a_bad_request(http: httpx.Client, body: bytes) -> None:
    answer = http.post(PATH, content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_argument"


def test_more_tensors_than_any_operator_has_are_refused(http: httpx.Client) -> None:
    answer = http.post(PATH, content=write_safetensors({f"t{i}": SOME for i in range(65)}, {"spec": "{}"}))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "capacity_exceeded")


def test_an_operator_that_there_is_not(http: httpx.Client) -> None:
    assert http.post("/v1/ops/convolution", content=b"").status_code == 404
    body = write_safetensors({}, {"spec": '{"num_heads": 2, "kv_num_heads": 1}'})
    lacking = http.post("/v1/ops/group_query_attention", content=body)
    assert (lacking.status_code, lacking.json()["error"]["code"]) == (400, "not_supported")
