"""`pageloom serve` as a user starts it: a process of its own, on a free port, with the tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from openai import OpenAI

from tests.native.software_drivers import environment_with

MODEL = "tiny"
"""What the worker calls the model: its file's name."""
PAGE = "http://localhost:8642"
TOKEN = "a-token-of-many-characters"
KEY = {"Authorization": f"Bearer {TOKEN}"}


def why_no_cpu() -> str:
    """Why models cannot run on this machine's CPU, or ""."""
    try:
        import pageloom.backends.cpu.model.load  # noqa: F401, PLC0415 - needs kernels compiled from these sources
    except ImportError as error:
        return str(error)
    return ""


QUICK = "webgpu" if why_no_cpu() else "cpu"
"""The backend that starts in the shortest time, for tests of what does not depend on it."""


@dataclass
class RunningWorker:
    process: subprocess.Popen[str]
    backend: str
    url: str
    """Without a path."""
    log: Path
    """What the process says on standard error."""

    @property
    def max_running(self) -> int:
        """Answers that it advances at once."""
        (model,) = httpx.get(f"{self.url}/v1/models", headers=KEY).json()["data"]
        return int(model["max_running"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def openai(self, **options: object) -> OpenAI:
        """The official client, without its retries: each answer counts."""
        settings = {"api_key": "none", "max_retries": 0, "timeout": 60.0, **options}
        return OpenAI(base_url=f"{self.url}/v1", **settings)  # type: ignore[arg-type]

    def http(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **options)  # type: ignore[arg-type]

    def metrics(self) -> dict[str, float]:
        """Each sample of `/metrics` by its name and labels."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def serving(model: Path, folder: Path, *options: str, backend: str = "webgpu") -> Iterator[RunningWorker]:
    """A worker whose state is in `folder`; killed at the end of the block, where it still runs."""
    log = folder / "worker.log"
    command = [sys.executable, "-m", "pageloom", "serve", "--model", str(model), "--port", "0", "--json"]
    command += ["--state", str(folder / "state.sqlite3"), "--num-blocks", "256", "--backend", backend, *options]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=dict(os.environ) if backend == "cuda" else environment_with("swiftshader", "lavapipe"),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        ready = json.loads(line)
        yield RunningWorker(process, backend, ready["url"], log)
    finally:
        process.kill()
        process.communicate()
