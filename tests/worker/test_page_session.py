"""The page's own protocol over HTTP: one stream of replies, calls posted beside it."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worker.running_worker import KEY, MODEL, QUICK, RunningWorker, serving

JOB = {"prompt": "hello world", "max_tokens": 6, "ignore_eos": True}


class Session:
    """A page's end of a session."""

    def __init__(self, http: httpx.Client, stream: httpx.Response) -> None:
        self._http = http
        self._ids = itertools.count(1)
        events = (json.loads(line[len("data: ") :]) for line in stream.iter_lines() if line)
        self.opening = next(events)
        self.replies: Iterator[dict[str, Any]] = itertools.chain.from_iterable(events)

    def post(self, *calls: tuple[str, dict[str, Any]]) -> list[int]:
        """Call methods, all in one message; their ids."""
        ids = [next(self._ids) for _ in calls]
        numbered = [
            {"id": id, "method": method, "params": params} for id, (method, params) in zip(ids, calls, strict=True)
        ]
        answer = self._http.post(f"/v1/session/{self.opening['session']}", json={"calls": numbered})
        assert answer.status_code == 204, answer.text
        return ids

    def ends(self, ids: list[int]) -> list[dict[str, Any]]:
        """The results or errors of calls, in the order of `ids`."""
        found: dict[int, dict[str, Any]] = {}
        while not found.keys() >= set(ids):
            reply = next(self.replies)
            if "event" not in reply:
                found[reply["id"]] = reply
        return [found[id] for id in ids]

    def first_token(self, id: int) -> None:
        next(reply for reply in self.replies if reply["id"] == id and "event" in reply)


@contextmanager
def session(worker: RunningWorker) -> Iterator[Session]:
    with (
        worker.http(headers=KEY) as http,
        worker.http(headers=KEY) as calls,
        http.stream("POST", "/v1/session") as stream,
    ):
        assert stream.status_code == 200, stream.read()
        yield Session(calls, stream)


def test_it_begins_with_the_model_and_answers_jobs_as_the_tab_does(worker: RunningWorker) -> None:
    with session(worker) as page, worker.http() as http:
        assert page.opening["model"]["name"] == MODEL
        assert page.opening["model"]["context_length"] == 512
        assert page.opening["model"]["adapter"]["description"]
        jobs = [JOB, {**JOB, "temperature": 1, "seed": 7}, {"prompt": "hello", "max_token": 3}]
        first, second, wrong = page.ends(page.post(*(("generate", job) for job in jobs)))
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "hello world"}], "ignore_eos": True}
        for answer, sampling in ((first, {"temperature": 0}), (second, {"temperature": 1, "seed": 7})):
            same = http.post("/v1/chat/completions", json={**chat, "max_tokens": 6, **sampling}).json()
            assert answer["result"]["text"] == same["choices"][0]["message"]["content"]
            assert len(answer["result"]["output_ids"]) == 6
        assert wrong["error"]["param"] == "max_token"


def test_it_counts_tokens_and_tells_what_the_views_show(worker: RunningWorker) -> None:
    with session(worker) as page:
        counted, stats, snapshot, watching = (
            ("countTokens", {"fields": JOB}),
            ("stats", {}),
            ("snapshot", {}),
            ("watch", {}),
        )
        answers = page.ends(page.post(counted, stats, snapshot, watching)[:3])
        (result,) = page.ends(page.post(("generate", JOB)))
        assert answers[0]["result"]["count"] == len(result["result"]["prompt_ids"])
        assert answers[1]["result"]["num_blocks"] == 256
        assert answers[2]["result"]["block_size"] == 16


def test_more_rows_than_run_at_once_are_all_answered(worker: RunningWorker) -> None:
    with session(worker) as page:
        ends = page.ends(page.post(*(("generate", {**JOB, "max_tokens": 1 + row % 3}) for row in range(150))))
        assert [len(end["result"]["output_ids"]) for end in ends] == [1 + row % 3 for row in range(150)]


def test_two_pages_may_number_their_calls_alike_and_each_stops_its_own(worker: RunningWorker) -> None:
    long = ("generate", {**JOB, "max_tokens": 400})
    with session(worker) as one, session(worker) as other:
        (mine,), (theirs,) = one.post(long), other.post(long)
        assert mine == theirs
        one.first_token(mine)
        one.post(("abort", {"id": mine}))
        assert one.ends([mine])[0]["result"]["finish_reason"] == "abort"
        assert other.ends([theirs])[0]["result"]["finish_reason"] == "length"


def test_its_jobs_end_with_the_page(worker: RunningWorker) -> None:
    with session(worker) as page:
        (job,) = page.post(("generate", {**JOB, "max_tokens": 400}))
        page.first_token(job)
        key = page.opening["session"]
    with worker.http() as http:
        while http.get("/v1/engine").json()["stats"]["running"]:
            pass
        gone = http.post(f"/v1/session/{key}", json={"calls": []})
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "calls",
    [
        5,
        ["x"],
        [{"id": 1}],
        [{"id": "1", "method": "stats", "params": {}}],
        [{"id": 1, "method": "close", "params": {}}],
        [{"id": 1, "method": ["stats"], "params": {}}],
        [{"id": 1, "method": "generate", "params": JOB}] * 2,
        [{"id": 1, "method": "snapshot", "params": {}}] * 101,
    ],
)
def test_what_is_no_call_is_refused(worker: RunningWorker, calls: object) -> None:
    with session(worker) as page, worker.http() as http:
        answer = http.post(f"/v1/session/{page.opening['session']}", json={"calls": calls})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_argument")


def test_an_id_is_free_again_once_its_job_is_answered(worker: RunningWorker) -> None:
    with session(worker) as page, worker.http() as http:
        path = f"/v1/session/{page.opening['session']}"
        call = {"id": 7, "method": "generate", "params": {**JOB, "max_tokens": 400}}
        assert http.post(path, json={"calls": [call]}).status_code == 204
        page.first_token(7)
        assert http.post(path, json={"calls": [call]}).json()["error"]["param"] == "calls"
        http.post(path, json={"calls": [{"id": 8, "method": "abort", "params": {"id": 7}}]})
        page.ends([7])
        assert http.post(path, json={"calls": [{**call, "params": JOB}]}).status_code == 204
        assert page.ends([7])[0]["result"]["finish_reason"] == "length"


def test_a_worker_that_stops_lets_its_jobs_end_and_then_ends_it(model_path: Path, tmp_path: Path) -> None:
    with serving(model_path, tmp_path, backend=QUICK) as worker:
        with session(worker) as page:
            (job,) = page.post(("generate", {**JOB, "max_tokens": 200}))
            page.first_token(job)
            worker.process.send_signal(signal.SIGTERM)
            assert page.ends([job])[0]["result"]["finish_reason"] == "length"
            assert list(page.replies) == []
        assert worker.process.wait(30) == 0


def test_what_others_see_of_a_page_does_not_let_them_into_its_session(worker: RunningWorker) -> None:
    with session(worker) as page, worker.http() as http:
        (running,) = page.post(("generate", {**JOB, "max_tokens": 400}))
        page.first_token(running)
        seen = http.get("/v1/engine/snapshot").text
        assert page.opening["prefix"] in seen
        assert page.opening["session"] not in seen
        page.post(("abort", {"id": running}))


def test_a_job_that_fails_in_an_unforeseen_way_takes_no_other_along(worker: RunningWorker) -> None:
    odd = {"oneOf": [{"type": None}, {"type": "string"}]}
    wanted = {"type": "json_schema", "json_schema": {"name": "odd", "schema": odd}}
    with session(worker) as page:
        wrong, right = page.ends(
            page.post(("generate", {"prompt": "hello", "response_format": wanted}), ("generate", JOB))
        )
        assert "error" in wrong
        assert len(right["result"]["output_ids"]) == 6
