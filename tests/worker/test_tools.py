"""The conformance matrix and the benches over HTTP: events as they come, one run at a time, ended with its client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import httpx
import pytest

from pageloom.attention.cases.matrix import all_cases
from pageloom.engine.snapshot import BlockView
from tests.worker.running_worker import KEY, RunningWorker, why_no_cpu

SCATTER = {"backend": "cpu", "operator": "tensor_scatter"}
LONG = {"backend": "cpu", "quick": False}
"""Takes minutes."""


def events(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def run(worker: RunningWorker, path: str, body: dict[str, Any]) -> list[Any]:
    with worker.http(headers=KEY) as http, http.stream("POST", path, json=body) as response:
        assert response.status_code == 200, response.read()
        return list(events(response))


def test_a_check_tells_of_every_case_and_sums_up(strict: RunningWorker) -> None:
    *told, end = run(strict, "/v1/checks", SCATTER)
    cases = list(all_cases(operator="tensor_scatter", quick=True))
    assert [event["report"]["name"] for event in told] == [case.name for case in cases]
    assert {event["total"] for event in told} == {len(cases)}
    assert end["counts"] == {"passed": len(cases), "failed": 0, "skipped": 0}
    assert end["adapter"]["adapter_class"] == "cpu"


def test_a_check_can_be_narrowed_to_cases_and_a_tier(strict: RunningWorker) -> None:
    name = next(iter(all_cases(operator="tensor_scatter", quick=True))).name
    told, end = run(strict, "/v1/checks", {**SCATTER, "case": name, "tier": "reference"})
    assert (told["report"]["name"], told["report"]["asked"]) == (name, "reference")
    assert end["counts"]["passed"] == 1


def test_what_only_the_run_finds_wrong_is_its_last_event(strict: RunningWorker) -> None:
    (event,) = run(strict, "/v1/checks", {**SCATTER, "case": "no/such/case"})
    assert event["error"]["code"] == "invalid_argument"
    assert "no/such/case" in event["error"]["message"]


def test_one_runs_at_a_time_and_ends_with_its_client(strict: RunningWorker) -> None:
    with strict.http(headers=KEY) as http:
        with http.stream("POST", "/v1/checks", json=LONG) as first:
            told = events(first)
            next(told)
            second = http.post("/v1/checks", json=SCATTER)
            assert (second.status_code, second.json()["error"]["code"]) == (429, "queue_full")
            assert second.headers["retry-after"]
            assert next(told)["report"], "the first goes on"
        assert http.get("/healthz").status_code == 200
        while (again := http.post("/v1/checks", json=SCATTER)).status_code == 429:
            pass  # until the worker has noticed that the first client left
        assert again.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/checks", {"backend": "tpu"}, "backend"),
        ("/v1/checks", {"backend": "webgpu", "operator": "tensor_scatter"}, "operator"),
        ("/v1/checks", {"backend": "cpu", "quick": "yes"}, "quick"),
        ("/v1/checks", {"backend": "cpu", "case": 7}, "case"),
        ("/v1/checks", {"backend": "cpu", "json": "/tmp/file"}, "json"),
        ("/v1/benches", {"backend": "cpu", "peer": "none"}, "peer"),
        ("/v1/benches", {"backend": ["cpu"]}, "backend"),
        ("/v1/benches", {"backend": "cpu", "shape": ""}, "shape"),
    ],
)
def test_a_body_that_asks_for_something_else_is_refused_by_field(
    strict: RunningWorker, path: str, body: dict[str, Any], param: str
) -> None:
    with strict.http(headers=KEY) as http:
        refused = http.post(path, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_a_text_in_a_body_is_never_an_option_of_the_command(strict: RunningWorker) -> None:
    (event,) = run(strict, "/v1/checks", {**SCATTER, "case": "--json=/tmp/file"})
    assert "no case" in event["error"]["message"]


@pytest.mark.skipif(bool(why_no_cpu()), reason=why_no_cpu())
def test_a_bench_tells_of_every_shape_as_it_is_measured_and_gives_all_its_numbers(strict: RunningWorker) -> None:
    *told, end = run(strict, "/v1/benches", {"backend": "cpu", "quick": False, "shape": "decode T=512 4/4 int8*"})
    rows = [row for event in told for row in event["rows"]]
    assert end["result"]["results"] == rows
    assert {event["total"] for event in told} == {len(told)}
    assert {row["shape"]["storage"] for row in rows} == {"int8", "int8 channels"}
    assert all(min(row["pairs"]["ours"]) > 0 < min(row["pairs"]["peer"]) for row in rows)


@pytest.mark.skipif(bool(why_no_cpu()), reason=why_no_cpu())
def test_a_bench_of_no_shape_says_which_there_are(strict: RunningWorker) -> None:
    (event,) = run(strict, "/v1/benches", {"backend": "cpu", "shape": "encode*"})
    assert "no shape matches 'encode*'" in event["error"]["message"]


def test_the_engine_tells_what_it_runs_on_and_who_owns_which_page(strict: RunningWorker) -> None:
    with strict.http(headers=KEY) as http:
        engine = http.get("/v1/engine").json()
        snapshot = http.get("/v1/engine/snapshot").json()
        assert http.get("/healthz").json()["backend"] == engine["backend"] == strict.backend
    assert engine["device"]
    assert engine["explain"]["kv_cache"]["num_blocks"] == len(snapshot["blocks"]) == 256
    assert engine["stats"]["used_blocks"] == 0
    assert snapshot["blocks"][0].keys() == {field.name for field in fields(BlockView)}
