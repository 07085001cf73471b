"""Many clients for some minutes, who come, read, and leave in the middle: `make load-test`.

It starts a worker with the tiny model, lets clients stream from it at once, some of them pages with rows of a batch,
and says what came of it. Every stream that was read to its end has to be whole, every row of a page that stayed
answered, and every refusal a 429 that says when to come again. After the last client the worker has to be as it was: no
request that runs, no page in use, no socket more, and no memory that grew with requests.
Exits with 1 where one of these does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.tiny_model import write_tiny_model
from tests.worker.running_worker import MODEL, RunningWorker, serving

NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=50)
"""As many connections as clients; some are used again, some are closed."""
PAGES = 8
"""Of the clients; the others use OpenAI's API."""
MOST_GROWTH = 48 * 2**20
"""Bytes that the worker may grow by between the first quarter and the end: buffers and caches that fill up once."""


class Clients:
    """What the clients saw."""

    def __init__(self, worker: RunningWorker, seconds: float) -> None:
        self._worker = worker
        self._end = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    async def run(self, number: int) -> None:
        async with httpx.AsyncClient(base_url=self._worker.url, timeout=120, limits=NO_LIMITS) as http:
            pages = min(PAGES, number // 2)
            asking = [self._client(http, random.Random(client)) for client in range(number - pages)]
            visiting = [self._page(http, random.Random(-1 - page)) for page in range(pages)]
            await asyncio.gather(*asking, *visiting)

    async def _page(self, http: httpx.AsyncClient, random: random.Random) -> None:
        while time.monotonic() < self._end:
            try:
                await self._visit(http, random)
            except httpx.HTTPError as error:
                self.problems.append(f"a page: {type(error).__name__}: {error}")

    async def _visit(self, http: httpx.AsyncClient, random: random.Random) -> None:
        """A page that asks for rows, stops some of them, and leaves once all are answered or before."""
        rows = random.randrange(1, 100)
        row = {"prompt": "hello world " * random.randrange(1, 12), "max_tokens": 8, "ignore_eos": True}
        jobs = [{"id": id, "method": "generate", "params": row} for id in range(rows)]
        stopped = random.sample(range(rows), rows // 4)
        aborts = [{"id": rows + id, "method": "abort", "params": {"id": id}} for id in stopped]
        stays = random.random() < 0.5
        async with http.stream("POST", "/v1/session") as stream:
            events = (json.loads(line.removeprefix("data: ")) async for line in stream.aiter_lines() if line)
            path = f"/v1/session/{(await anext(events))['session']}"
            for calls in (jobs, aborts):
                taken = await http.post(path, json={"calls": calls})
                if taken.status_code != 204:
                    self.problems.append(f"a page's calls were refused: {taken.text}")
                    return
            open_calls = {call["id"] for call in (*jobs, *aborts)}
            async for replies in events:
                ended = [reply for reply in replies if "event" not in reply]
                self.problems += [f"a page's row failed: {reply}" for reply in ended if "error" in reply]
                open_calls -= {reply["id"] for reply in ended}
                if not open_calls or not stays:
                    self.counts["pages answered" if not open_calls else "pages left"] += 1
                    return
        self.problems.append("a page's session ended before its rows")

    async def _client(self, http: httpx.AsyncClient, random: random.Random) -> None:
        while time.monotonic() < self._end:
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "hello world " * random.randrange(1, 12)}],
                "max_tokens": random.randrange(1, 40),
                "n": random.choice([1, 1, 1, 2]),
                "seed": random.randrange(1000),
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            leaves_after = random.choice([None, None, 0, 1, random.randrange(2, 20)])
            try:
                await self._ask(http, body, leaves_after)
            except httpx.HTTPError as error:
                self.problems.append(f"{type(error).__name__}: {error}")

    async def _ask(self, http: httpx.AsyncClient, body: dict[str, Any], leaves_after: int | None) -> None:
        if leaves_after == 0:
            # Gone before the first byte, maybe before the worker has read the request.
            asking = asyncio.ensure_future(http.post("/v1/chat/completions", json={**body, "stream": False}))
            await asyncio.wait([asking], timeout=0.2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            self.counts["left early"] += 1
            return
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code == 429:
                await response.aread()
                self.counts["refused"] += 1
                if not response.headers.get("retry-after", "").isdigit() or "error" not in response.json():
                    self.problems.append(f"a 429 without its parts: {response.text}")
                await asyncio.sleep(0.2)
                return
            lines = []
            async for line in response.aiter_lines():
                lines += [line] if line else []
                if leaves_after is not None and len(lines) >= leaves_after:
                    self.counts["left in the middle"] += 1
                    return
        self.counts["read to the end"] += 1
        if (problem := why_not_whole(response.status_code, lines, body)) is not None:
            self.problems.append(f"{problem}: {lines[-3:]}")


def why_not_whole(status: int, lines: list[str], body: dict[str, Any]) -> str | None:
    """What is wrong with a stream that was read to its end, if anything."""
    if status != 200:
        return f"status {status}"
    if not all(line.startswith("data: ") for line in lines) or lines[-1:] != ["data: [DONE]"]:
        return "it does not end with [DONE]"
    *chunks, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    if usage["choices"] or not usage["usage"]["completion_tokens"]:
        return "it has no usage"
    for index in range(body["n"]):
        choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        reasons = [choice["finish_reason"] for choice in choices]
        if choices[0]["delta"].get("role") != "assistant" or reasons[-1] not in ("stop", "length"):
            return f"choice {index} does not begin or end"
        if any(reasons[:-1]):
            return f"choice {index} goes on after its end"
    return None


def sockets(worker: RunningWorker) -> int:
    """Sockets that the worker has open."""
    links = Path(f"/proc/{worker.process.pid}/fd").iterdir()
    return sum(link.readlink().name.startswith("socket:") for link in links if link.is_symlink())


def resident_bytes(worker: RunningWorker) -> int:
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def watch_memory(worker: RunningWorker, seconds: float) -> int:
    """The resident bytes after a quarter of the time, when every buffer has been used."""
    await asyncio.sleep(seconds / 4)
    return resident_bytes(worker)


def until_idle(worker: RunningWorker) -> dict[str, float]:
    """The metrics once nothing runs or waits, or as they are after a while in which something still does."""
    deadline = time.monotonic() + 30
    while True:
        metrics = worker.metrics()
        busy = metrics["pageloom_requests_running"] + metrics["pageloom_requests_waiting"]
        if not busy or time.monotonic() > deadline:
            return metrics
        time.sleep(0.1)


def sockets_left(worker: RunningWorker, before: int) -> int:
    """Sockets that are more than before, once the worker has noticed who left."""
    deadline = time.monotonic() + 10
    while (left := sockets(worker) - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return max(0, left)


async def run_clients(clients: Clients, number: int, worker: RunningWorker, seconds: float) -> int:
    memory, _ = await asyncio.gather(watch_memory(worker, seconds), clients.run(number))
    return memory


def main() -> int:
    parser = argparse.ArgumentParser(description="Many clients who come and go, for some minutes.")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--backend", choices=("webgpu", "cpu"), default="webgpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder) / f"{MODEL}.gguf")
        with serving(model, Path(folder), "--queue", "128", backend=options.backend) as worker:
            worker.metrics()
            before = sockets(worker)
            clients = Clients(worker, options.seconds)
            early = asyncio.run(run_clients(clients, options.clients, worker, options.seconds))
            metrics = until_idle(worker)
            growth = resident_bytes(worker) - early
            checks = {
                "every stream was whole": not clients.problems,
                "no request is left": metrics["pageloom_requests_running"] == metrics["pageloom_requests_waiting"] == 0,
                "no page is in use": metrics['pageloom_pages{state="used"}'] == 0,
                "no socket is left": not sockets_left(worker, before),
                "memory did not grow with the requests": growth <= MOST_GROWTH,
                "it stops well": worker.stop() == 0,
                "its log has no failure": "Traceback" not in worker.log.read_text(),
            }
    print(f"{sum(clients.counts.values())} requests: " + ", ".join(f"{n} {what}" for what, n in clients.counts.items()))
    print(f"memory grew by {growth / 2**20:.1f} MiB after the first quarter")
    for promise, holds in checks.items():
        print(f"{'ok    ' if holds else 'BROKEN'} {promise}")
    for problem in clients.problems[:10]:
        print(problem, file=sys.stderr)
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
