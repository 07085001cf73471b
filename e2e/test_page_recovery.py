"""A GPU that goes away while a batch runs: the engine sets it up again, and every row ends as if it had stayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Worker

from pageloom.commands.page_server import PageServer

LOADING_MS = 180_000

pytestmark = pytest.mark.timeout(600)

REMEMBER_DEVICES = """
() => {
  const ask = GPUAdapter.prototype.requestDevice;
  self.devices = [];
  GPUAdapter.prototype.requestDevice = async function (...descriptors) {
    const device = await ask.apply(this, descriptors);
    self.devices.push(device);
    return device;
  };
}
"""
START_LOADING = """
async () => {
  const { Pageloom } = await import('./pageloom.js');
  globalThis.loading = Pageloom.load({ model: 'built-in', store: true, num_blocks: 64, max_sequences: 8 });
}
"""
PREPARE = """
async () => {
  globalThis.engine = await loading;
  globalThis.told = [];
  engine.addEventListener('recovery', ({ detail }) => told.push(detail));
  const prompts = ['What is gravity?', 'Name a colour.', 'One, two,', 'Why is the sky blue?'];
  globalThis.rows = prompts.flatMap((prompt, index) => [
    { prompt, max_tokens: 5 },
    { prompt, max_tokens: 5, temperature: 1, seed: index },
  ]);
  globalThis.idsOf = (results) => results.map(({ output_ids, error }) => output_ids ?? error);
}
"""
DESTROY = "() => { devices.at(-1).destroy(); return devices.length; }"


@pytest.fixture(scope="module")
def page(chromium: Browser, built_page: PageServer) -> Iterator[Page]:
    """A page beside the built files, with an engine of eight rows."""
    page = chromium.new_page(service_workers="block")
    address = f"{built_page.url}empty.html"
    page.route(address, lambda route: route.fulfill(content_type="text/html", body="<!doctype html><title>Recovery"))
    page.goto(address)
    with page.expect_worker() as started:
        page.evaluate(START_LOADING)
    started.value.evaluate(REMEMBER_DEVICES)
    page.evaluate(PREPARE)
    yield page
    page.close()


@pytest.fixture
def worker(page: Page) -> Worker:
    """The worker of the engine."""
    return next(worker for worker in page.workers if worker.evaluate("'devices' in self"))


def until(page: Page, condition: str) -> None:
    page.wait_for_function(condition, timeout=LOADING_MS)


def test_a_batch_of_eight_ends_with_the_ids_it_would_have_had(page: Page, worker: Worker) -> None:
    undisturbed = page.evaluate("async () => idsOf(await engine.batch(rows))")
    assert [len(ids) for ids in undisturbed] == [5] * 8
    page.evaluate("""() => {
      globalThis.pieces = 0;
      globalThis.running = engine.batch(rows, { onText: () => { pieces += 1; } });
    }""")
    until(page, "pieces >= 16")
    assert worker.evaluate(DESTROY) == 1
    assert page.evaluate("async () => idsOf(await running)") == undisturbed
    told: list[dict[str, Any]] = page.evaluate("told")
    assert [(event["state"], event["requests"]) for event in told] == [("lost", 8), ("recovered", 8)]
    assert worker.evaluate("devices.length") == 2


def test_a_second_loss_within_seconds_gives_up_in_words_that_help(page: Page, worker: Worker) -> None:
    page.evaluate(
        "() => { told.length = 0; globalThis.gone = null; engine.lost.then(({ error }) => { gone = error; }); }"
    )
    worker.evaluate(DESTROY)
    until(page, "gone || told.at(-1)?.state === 'recovered'")
    if page.evaluate("gone") is None:  # else the loss of the test before was seconds ago
        worker.evaluate(DESTROY)
        until(page, "gone")
    gone = page.evaluate("gone")
    assert gone["code"] == "device_lost"
    assert "lost again" in gone["message"]
    assert "fewer sequences" in gone["message"]
    assert page.evaluate("async () => (await engine.batch([{ prompt: 'Hi' }]))[0].error") == gone
