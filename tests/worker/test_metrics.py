"""What `/metrics` tells adds up with what clients were told."""

from __future__ import annotations

import httpx
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.openai_kit import chat
from tests.worker.running_worker import RunningWorker


def test_tokens_steps_and_responses_are_counted(worker: RunningWorker, client: OpenAI) -> None:
    before = worker.metrics()
    usage = chat(client, max_tokens=9, messages=[{"role": "user", "content": "counted once"}]).usage
    worker.http().get("/nowhere")
    after = worker.metrics()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown('pageloom_tokens_total{kind="output"}') == usage.completion_tokens == 9
    computed = grown('pageloom_tokens_total{kind="prefill"}') + grown('pageloom_tokens_total{kind="cached"}')
    assert computed == usage.prompt_tokens
    assert grown('pageloom_http_responses_total{status="200"}') == 2, "the answer, and the scrape before it"
    assert grown('pageloom_http_responses_total{status="404"}') == 1
    assert grown("pageloom_step_seconds_count") >= 9
    assert grown("pageloom_step_seconds_sum") > 0


def test_prometheus_can_read_it_and_each_family_says_what_it_is(http: httpx.Client) -> None:
    response = http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert {
        "pageloom_requests_waiting": "gauge",
        "pageloom_requests_running": "gauge",
        "pageloom_tokens": "counter",
        "pageloom_step_seconds": "summary",
        "pageloom_pages": "gauge",
        "pageloom_preemptions": "counter",
        "pageloom_http_responses": "counter",
    }.items() <= {name: family.type for name, family in families.items()}.items()
    assert all(family.documentation for family in families.values())
