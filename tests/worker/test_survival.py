"""A batch outlives its worker, however that ends; clients of a worker that stops are answered or told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worker.batch_kit import submit, wait
from tests.worker.running_worker import MODEL, QUICK, RunningWorker, serving

ROWS = 120
STREAM = {"model": MODEL, "prompt": "hello", "max_tokens": 480, "logit_bias": {"40": 100}, "stream": True}


def done(batch: Any) -> int:
    return int(batch.request_counts.completed)


def answers(worker: RunningWorker, batch_id: str) -> dict[str, str]:
    """The lines of a batch's answers so far by their custom_id; each must be there once."""
    with worker.http() as http:
        lines = http.get(f"/v1/files/file-output-{batch_id}/content").text.splitlines()
    found = {json.loads(line)["custom_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


@dataclass
class History:
    """One batch over three workers with one state: the first is killed, the second stopped with no grace."""

    batch_id: str
    before_the_kill: dict[str, str]
    after_the_kill: dict[str, str]
    before_the_stop: dict[str, str]
    at_the_end: dict[str, str]
    aborted: list[str]
    """Events of a stream that the second worker had no time for."""
    finished: list[str]
    """Events of a stream that the third worker ended while it was stopping."""
    exits: list[int]
    refused: bool
    """Whether a worker that is stopping takes no new connection."""


@pytest.fixture(scope="module")
def history(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("survival")
    rows = [
        {
            "custom_id": f"row {index}",
            "method": "POST",
            "url": "/v1/completions",
            # Sampled without a seed: a row that is computed again says something else.
            "body": {"model": MODEL, "prompt": "a", "max_tokens": 20 + 3 * index, "temperature": 2, "ignore_eos": True},
        }
        for index in range(ROWS)
    ]
    with serving(model_path, folder, backend=QUICK) as first, first.openai() as client:
        batch = wait(client, submit(client, rows, "/v1/completions"), lambda batch: done(batch) >= 5)
        before_the_kill = answers(first, batch.id)
        first.process.kill()
        first.process.wait()

    with serving(model_path, folder, "--grace", "0", backend=QUICK) as second, second.openai() as client:
        wait(client, batch, lambda batch: done(batch) > len(before_the_kill) + 5)
        after_the_kill = answers(second, batch.id)
        before_the_stop = answers(second, batch.id)
        with second.http() as http, http.stream("POST", "/v1/completions", json=STREAM) as stream:
            events = (line for line in stream.iter_lines() if line)
            aborted = [next(events)]
            exits = [second.stop()]
            aborted += events

    with serving(model_path, folder, backend=QUICK) as third, third.openai() as client:
        wait(client, batch)
        at_the_end = answers(third, batch.id)
        with third.http() as http, http.stream("POST", "/v1/completions", json=STREAM) as stream:
            events = (line for line in stream.iter_lines() if line)
            finished = [next(events)]
            third.process.terminate()
            finished += events
        exits.append(third.process.wait(timeout=60))
        try:
            refused = bool(httpx.get(third.url + "/healthz")) and False
        except httpx.ConnectError:
            refused = True
    return History(
        batch.id, before_the_kill, after_the_kill, before_the_stop, at_the_end, aborted, finished, exits, refused
    )


def test_a_batch_is_finished_after_a_kill_and_a_stop_with_each_row_once(history: History) -> None:
    assert set(history.at_the_end) == {f"row {index}" for index in range(ROWS)}


def test_a_row_that_was_finished_is_never_computed_again(history: History) -> None:
    assert 5 <= len(history.before_the_kill) < len(history.after_the_kill) < ROWS
    for earlier in (history.before_the_kill, history.after_the_kill, history.before_the_stop):
        assert earlier.items() <= history.at_the_end.items()
    assert len(set(history.at_the_end.values())) == ROWS


def test_a_stream_that_runs_when_the_worker_stops_is_finished_in_the_time_that_it_has(history: History) -> None:
    assert history.finished[-1] == "data: [DONE]"
    last = json.loads(history.finished[-2].removeprefix("data: "))
    assert last["choices"][0]["finish_reason"] == "length"
    text = "".join(json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in history.finished[:-1])
    assert text == "F" * 480


def test_a_stream_that_has_no_time_left_is_told_so(history: History) -> None:
    error = json.loads(history.aborted[-1].removeprefix("data: "))["error"]
    assert error["code"] == "server_stopping"
    assert 1 < len(history.aborted) < 482


def test_a_stopped_worker_ends_well_and_serves_nobody(history: History) -> None:
    assert history.exits == [0, 0]
    assert history.refused
