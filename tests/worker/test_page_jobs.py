"""The jobs of one page before the engine: their order, their places, and that none of them holds up another."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import pageloom
from pageloom.language_model import LanguageModel
from pageloom.session import PreparedJob, Session
from pageloom.worker.page_jobs import PageJobs
from tests.worker.running_worker import why_no_cpu

JOB = {"prompt": "hello world", "max_tokens": 6, "ignore_eos": True}
ENDLESS = {**JOB, "max_tokens": 450}

pytestmark = pytest.mark.skipif(bool(why_no_cpu()), reason=why_no_cpu())


class SlowSession(Session):
    """Encodes a prompt once it is let to."""

    may_encode = threading.Event()

    def prepare(self, fields: object) -> PreparedJob | Exception:
        self.may_encode.wait(60)
        return super().prepare(fields)


class Page:
    """What one page has asked for, and what it is told."""

    def __init__(self, model: LanguageModel, places: int, session: type[Session] = Session) -> None:
        self.model = model
        self.replies: list[dict[str, Any]] = []
        self.jobs = PageJobs(session(model, self._receive, prefix="page/"), places=places)
        self._told = asyncio.Event()

    def _receive(self, text: str) -> None:
        self.replies += json.loads(text)
        self._told.set()

    async def until_told_of(self, *calls: int) -> None:
        """Wait for a reply to each of `calls`."""
        while not {reply["id"] for reply in self.replies} >= set(calls):
            self._told.clear()
            await self._told.wait()

    def ends(self) -> dict[int, str]:
        """By the jobs that were answered, in this order, the finish reason or the error's code."""
        return {
            reply["id"]: reply["result"]["finish_reason"] if "result" in reply else reply["error"]["code"]
            for reply in self.replies
            if "event" not in reply
        }

    def with_engine(self) -> list[str]:
        """The requests that the engine has, the first to come first."""
        snapshot = self.model.snapshot()
        return [request.id for request in (*snapshot.running, *snapshot.waiting)]


@pytest.fixture
async def model(model_path: Path) -> AsyncIterator[LanguageModel]:
    model = await pageloom.load(str(model_path), backend="cpu")
    yield model
    await model.close()


async def test_jobs_come_to_the_engine_in_their_order_and_no_more_than_have_places(model: LanguageModel) -> None:
    page = Page(model, places=2)
    page.jobs.add([(1, {**ENDLESS, "prompt": "hello world " * 20}), (2, ENDLESS), (3, JOB), (4, JOB)])
    await page.until_told_of(1, 2)
    assert page.with_engine() == ["page/1", "page/2"]
    assert (len(page.jobs), 4 in page.jobs, 5 in page.jobs) == (4, True, False)
    page.jobs.abort(1)
    await page.until_told_of(3)
    assert "page/4" not in page.with_engine()
    page.jobs.abort(2)
    await page.jobs.idle()
    assert page.ends() == {1: "abort", 2: "abort", 3: "length", 4: "length"}
    assert len(page.jobs) == 0


async def test_a_prompt_that_is_long_in_encoding_holds_up_no_step_of_others(model: LanguageModel) -> None:
    page, other = Page(model, places=2, session=SlowSession), Page(model, places=2)
    page.jobs.add([(1, {**JOB, "prompt": "hello world " * 2000})])
    other.jobs.add([(2, JOB)])
    await other.jobs.idle()
    assert other.ends() == {2: "length"}
    assert page.replies == []
    SlowSession.may_encode.set()
    await page.jobs.idle()
    assert page.ends() == {1: "capacity_exceeded"}


async def test_a_job_that_is_stopped_before_it_began_is_answered_and_its_id_is_free(model: LanguageModel) -> None:
    page = Page(model, places=1)
    page.jobs.add([(1, JOB), (2, JOB), (3, JOB)])
    page.jobs.abort(1)  # its prompt is being encoded
    page.jobs.abort(3)
    await page.until_told_of(1, 3)
    page.jobs.add([(1, JOB)])
    await page.jobs.idle()
    assert page.ends() == {1: "length", 2: "length", 3: "abort"}
    assert [reply["result"]["finish_reason"] for reply in page.replies if reply["id"] == 1 and "result" in reply] == [
        "abort",
        "length",
    ]


async def test_jobs_that_wait_are_dropped_when_their_page_leaves(model: LanguageModel) -> None:
    page = Page(model, places=1)
    page.jobs.add([(1, ENDLESS), (2, JOB)])
    await page.until_told_of(1)
    page.jobs.abort_all()
    await page.jobs.idle()
    assert page.ends() == {1: "abort"}
    assert page.with_engine() == []
