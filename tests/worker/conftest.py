"""One worker for all tests that leave it as they found it; a test that stops, floods or limits one has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.tiny_model import write_tiny_model
from tests.worker.running_worker import MODEL, PAGE, QUICK, TOKEN, RunningWorker, serving, why_no_cpu


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / f"{MODEL}.gguf")


@pytest.fixture(scope="session", params=["webgpu", "cpu"])
def worker(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningWorker]:
    """A test that takes it runs once for each backend that runs models here."""
    if request.param == "cpu" and (reason := why_no_cpu()):
        pytest.skip(f"no models on the CPU: {reason}")
    with serving(model_path, tmp_path_factory.mktemp("worker"), backend=request.param) as running:
        yield running


@pytest.fixture(scope="session")
def strict(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    """A worker with a token, for the page at `PAGE`, where no more may wait than run."""
    folder = tmp_path_factory.mktemp("strict")
    (folder / "token").write_text(TOKEN + "\n")
    options = ["--token-file", str(folder / "token"), "--allow-origin", PAGE, "--queue", "0"]
    with serving(model_path, folder, *options, backend=QUICK) as running:
        yield running


@pytest.fixture(scope="session")
def client(worker: RunningWorker) -> Iterator[OpenAI]:
    with worker.openai() as opened:
        yield opened


@pytest.fixture(scope="session")
def http(worker: RunningWorker) -> Iterator[httpx.Client]:
    with worker.http() as opened:
        yield opened
