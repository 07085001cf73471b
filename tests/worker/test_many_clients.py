"""Many clients at once: each gets what it gets alone; who finds no room is told when to come again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.worker.running_worker import KEY, MODEL, TOKEN, RunningWorker

CLIENTS = 32
ENDLESS: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 480, "logit_bias": {"40": 100}}


def test_32_clients_at_once_get_what_each_gets_alone(worker: RunningWorker) -> None:
    bodies = [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "hello world " * (1 + number % 5)}],
            "max_tokens": 6 + number % 7,
            "temperature": 0 if number % 2 else 1.1,
            "seed": number,
        }
        for number in range(CLIENTS)
    ]

    def ask(body: dict[str, Any]) -> Any:
        with worker.http() as http:
            return http.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"]

    alone = [ask(body) for body in bodies]
    steps = worker.metrics()["pageloom_step_seconds_count"]
    with ThreadPoolExecutor(CLIENTS) as clients:
        together = list(clients.map(ask, bodies))
    assert together == alone
    taken = worker.metrics()["pageloom_step_seconds_count"] - steps
    assert taken < sum(body["max_tokens"] for body in bodies) / 2, "they shared steps"


def test_beyond_the_queue_a_client_is_told_to_come_again_and_may(strict: RunningWorker) -> None:
    places = strict.max_running
    everything = {**ENDLESS, "n": places, "stream": True}
    with strict.http(headers=KEY) as http, http.stream("POST", "/v1/completions", json=everything):
        refused = http.post("/v1/completions", json=ENDLESS)
        assert refused.status_code == 429
        assert refused.headers["retry-after"].isdigit()
        assert refused.json()["error"]["code"] == "queue_full"
        impossible = http.post("/v1/completions", json={**ENDLESS, "n": places + 1})
        assert (impossible.status_code, impossible.json()["error"]["code"]) == (400, "capacity_exceeded")


def test_the_official_client_waits_and_comes_again_by_itself(strict: RunningWorker) -> None:
    with strict.openai(api_key=TOKEN) as impatient, strict.openai(api_key=TOKEN, max_retries=8) as patient:
        busy = impatient.completions.create(**{**ENDLESS, "n": strict.max_running, "stream": True, "max_tokens": 60})
        next(iter(busy))
        with pytest.raises(openai.RateLimitError):
            impatient.completions.create(model=MODEL, prompt="a", max_tokens=1)
        assert patient.completions.create(model=MODEL, prompt="a", max_tokens=1).choices
        busy.close()


def test_a_client_that_hangs_up_before_its_answer_frees_its_pages(worker: RunningWorker) -> None:
    for _ in range(3):
        with worker.http() as http, pytest.raises(httpx.ReadTimeout):
            http.post("/v1/completions", json={**ENDLESS, "n": worker.max_running}, timeout=0.1)
    with worker.http() as http:
        assert http.post("/v1/completions", json={**ENDLESS, "max_tokens": 1}).status_code == 200
    metrics = worker.metrics()
    assert metrics["pageloom_requests_running"] == 0
    assert metrics['pageloom_pages{state="used"}'] == 0


def test_clients_that_begin_alike_share_pages(worker: RunningWorker) -> None:
    body = {**ENDLESS, "prompt": [7] * 64, "n": 4, "stream": True}
    with worker.http() as http, http.stream("POST", "/v1/completions", json=body) as stream:
        lines = stream.iter_lines()
        seen = {next(lines) for _ in range(40)}
        assert seen
        metrics = worker.metrics()
    assert metrics["pageloom_requests_running"] == 4
    assert metrics['pageloom_pages{state="shared"}'] == 3, "the page of the last token is computed by each"
    total = sum(metrics[f'pageloom_pages{{state="{state}"}}'] for state in ("free", "used"))
    assert total == 256
