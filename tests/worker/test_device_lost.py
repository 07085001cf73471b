"""A device that is lost: clients are told, health says so, and no row of a batch is lost with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

import pageloom
from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.language_model import LanguageModel
from pageloom.worker.app import Worker
from pageloom.worker.batches.disk import Disk
from pageloom.worker.config import Access, Limits
from pageloom.worker.model_thread import ModelThread
from tests.native.one_adapter import OneAdapter

ENDLESS: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 400, "logit_bias": {"40": 100}}


@pytest_asyncio.fixture
async def fragile(model_path: Path, tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Callable[[], object]]]:
    """A client of a worker in this process, and what ends its device."""
    devices: list[Callable[[], object]] = []

    async def load() -> LanguageModel:
        settings = RunnerSettings(num_blocks=64)
        model = await pageloom.load(model_path, settings=settings, home=OneAdapter("swiftshader"))
        loop = asyncio.get_running_loop()
        devices.append(lambda: loop.call_soon_threadsafe(model.runner.device.close))
        return model

    disk = Disk(tmp_path / "state.sqlite3")
    worker = Worker("tiny", "webgpu", await ModelThread.load(load, 4), disk, Access(), Limits())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(worker.app), base_url="http://localhost") as client:
        yield client, devices[0]
    await worker.close()


async def test_everybody_is_told_and_batches_wait_for_another_device(
    fragile: tuple[httpx.AsyncClient, Callable[[], object]],
) -> None:
    client, end_device = fragile
    row = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": ENDLESS}
    upload = await client.post("/v1/files", files={"file": json.dumps(row)}, data={"purpose": "batch"})
    batch = {"input_file_id": upload.json()["id"], "endpoint": "/v1/completions"}
    batch_id = (await client.post("/v1/batches", json=batch)).json()["id"]
    assert (await client.get("/healthz")).status_code == 200
    while "pageloom_requests_running 1.0" not in (await client.get("/metrics")).text:
        pass

    end_device()

    for _ in range(2):
        refused = await client.post("/v1/completions", json=ENDLESS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "device_lost")
    health = await client.get("/healthz")
    assert (health.status_code, health.json()["error"]["code"]) == (503, "device_lost")
    told = (await client.get(f"/v1/batches/{batch_id}")).json()
    assert told["status"] == "in_progress"
    assert told["request_counts"] == {"total": 1, "completed": 0, "failed": 0}
