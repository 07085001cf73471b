"""What `/metrics` tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pageloom.engine.snapshot import EngineStats
from pageloom.worker.model_thread import ModelThread


class Metrics:
    """Counts responses, and asks the engine at each scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._responses = Counter(
            "pageloom_http_responses", "Responses that were begun", ["status"], registry=self._registry
        )
        self._engine = _LastObserved()
        self._registry.register(self._engine)

    def count_response(self, status: int) -> None:
        self._responses.labels(str(status)).inc()

    async def render(self, model: ModelThread) -> bytes:
        """The text of a scrape."""
        self._engine.metrics = list(engine_metrics(await model.stats()))
        return generate_latest(self._registry)


class _LastObserved(Collector):
    def __init__(self) -> None:
        self.metrics: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def engine_metrics(stats: EngineStats) -> Iterator[Metric]:
    """The engine in Prometheus's terms."""
    yield GaugeMetricFamily("pageloom_requests_waiting", "Answers that wait for a row of the step", stats.waiting)
    yield GaugeMetricFamily("pageloom_requests_running", "Answers that the step advances", stats.running)
    tokens = CounterMetricFamily("pageloom_tokens", "Tokens computed, or found in the prefix cache", labels=["kind"])
    tokens.add_metric(["prefill"], stats.prefill_tokens)
    tokens.add_metric(["decode"], stats.decode_tokens)
    tokens.add_metric(["cached"], stats.cached_tokens)
    tokens.add_metric(["output"], stats.output_tokens)
    yield tokens
    yield SummaryMetricFamily("pageloom_step_seconds", "Time of steps", stats.steps, stats.busy_seconds)
    pages = GaugeMetricFamily("pageloom_pages", "Pages of the KV pool", labels=["state"])
    pages.add_metric(["free"], stats.num_blocks - stats.used_blocks)
    pages.add_metric(["used"], stats.used_blocks)
    pages.add_metric(["shared"], stats.shared_blocks)
    yield pages
    yield CounterMetricFamily("pageloom_preemptions", "Answers set aside for want of pages", stats.preemptions)


class CountResponses:
    """Middleware that counts the responses of everything inside it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count_response(message["status"])
            await send(message)

        await self._app(scope, receive, counting)
