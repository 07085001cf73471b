"""What can befall a tab with a model, as its user sees it: told in words, and the work goes on or is begun again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pageloom.commands.browser import browser_flags, find_browser
from pageloom.commands.page_server import PageServer

LOADING_MS = 180_000

REFUSE_MEMORY = """
() => {
  const { pushErrorScope, popErrorScope } = GPUDevice.prototype;
  const filters = [];
  Object.assign(GPUDevice.prototype, {
    pushErrorScope(filter) {
      filters.push(filter);
      pushErrorScope.call(this, filter);
    },
    async popErrorScope() {
      const isOfMemory = filters.pop() === 'out-of-memory';
      const error = await popErrorScope.call(this);
      return isOfMemory ? new GPUOutOfMemoryError('not enough memory left') : error;
    },
  });
}
"""

HIDE = """
(hidden) => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  Object.defineProperty(document, 'visibilityState', { value: hidden ? 'hidden' : 'visible', configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Iterator[Browser]:
    """A browser of these tests' own: one of them crashes its GPU process."""
    browser = chromium.browser_type.launch(
        executable_path=find_browser(), args=["--no-sandbox", *browser_flags("software")]
    )
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(browser: Browser, tiny_page: PageServer) -> Iterator[Page]:
    """The page with a tiny model that the browser keeps."""
    page = browser.new_context(service_workers="block").new_page()
    page.goto(tiny_page.url)
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    loaded(page)
    yield page
    page.context.close()


def loaded(page: Page) -> None:
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=LOADING_MS)
    expect(page.locator("#status")).to_contain_text("Running")


def start_batch(page: Page, rows: int) -> Locator:
    page.get_by_role("tab", name="Batch").click()
    batch = page.get_by_role("tabpanel", name="Batch")
    batch.get_by_role("textbox", name="Rows").fill("\n".join(["n,word", *(f"{n},w{n}" for n in range(rows))]))
    batch.get_by_label("Template", exact=True).fill("Say {word}")
    batch.get_by_label("Most tokens").fill("200")
    batch.get_by_role("button", name=re.compile(r"^Run \d+ rows")).click()
    return batch


def notice(page: Page, words: str) -> Locator:
    return page.locator(".notice").filter(has_text=words)


def test_a_crash_of_the_gpu_process_is_told_and_the_batch_goes_on(browser: Browser, page: Page) -> None:
    batch = start_batch(page, 60)
    expect(batch.get_by_text(re.compile("^[1-9][0-9]? of 60 rows done"))).to_be_visible(timeout=LOADING_MS)
    browser.new_browser_cdp_session().send("Browser.crashGpuProcess")
    expect(notice(page, "The GPU is back after")).to_be_visible(timeout=LOADING_MS)
    expect(notice(page, "go on where they stopped")).to_be_visible()
    expect(batch.get_by_text("60 of 60 rows done")).to_be_visible(timeout=LOADING_MS)
    notice(page, "The GPU is back").get_by_role("button", name="Dismiss").click()
    expect(page.locator(".notice")).to_have_count(0)


def test_a_hidden_tab_goes_on_and_one_that_was_frozen_says_so(page: Page) -> None:
    """Automation keeps its tabs in view, so the page is told what a browser would tell it."""
    page.evaluate(HIDE, True)
    batch = start_batch(page, 40)
    expect(batch.get_by_text("40 of 40 rows done")).to_be_visible(timeout=LOADING_MS)
    expect(page.locator(".notice")).to_have_count(0)
    page.evaluate("() => { for (const name of ['freeze', 'resume']) document.dispatchEvent(new Event(name)); }")
    page.evaluate(HIDE, False)
    told = notice(page, "The browser had frozen this tab")
    expect(told).to_contain_text("What was running goes on now")
    told.get_by_role("button", name="Dismiss").click()


def test_a_worker_that_the_browser_ended_can_be_started_again_and_what_was_there_is_kept(page: Page) -> None:
    batch = start_batch(page, 12)
    rows = batch.get_by_role("textbox", name="Rows").input_value()
    for worker in page.workers:
        worker.evaluate("() => self.close()")
    ended = page.get_by_role("alert").filter(has_text="The engine has stopped")
    expect(ended).to_contain_text("The worker stopped: the browser ended it")
    ended.get_by_role("button", name="Load the model again").click()
    loaded(page)
    expect(ended).to_have_count(0)
    assert batch.get_by_role("textbox", name="Rows").input_value() == rows


def test_a_second_tab_with_a_model_shares_the_kept_copy_and_is_told_of_the_first(
    page: Page, tiny_page: PageServer
) -> None:
    other = page.context.new_page()
    fetched: list[str] = []
    other.on("request", lambda request: fetched.append(f"{request.method} {request.url}"))
    other.goto(tiny_page.url)
    other.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    loaded(other)
    expect(notice(other, "Another tab has a model loaded too")).to_be_visible()
    assert [line for line in fetched if line.startswith("GET") and line.endswith(".gguf")] == []
    expect(page.locator(".notice")).to_have_count(0)
    other.close()


def test_an_adapter_without_f16_is_told_of_and_works(page: Page) -> None:
    page.get_by_role("tab", name="Models").click()
    expect(page.get_by_text("this adapter lacks shader-f16: halves are packed")).to_be_visible()


def test_a_gpu_without_room_is_told_with_what_to_choose(browser: Browser, tiny_page: PageServer) -> None:
    page = browser.new_page(service_workers="block")
    page.goto(tiny_page.url)
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    expect(page.get_by_role("listitem").filter(has_text="Start Python")).to_be_visible()
    page.workers[-1].evaluate(REFUSE_MEMORY)  # it opens its device once Python has started
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The GPU has too little memory", timeout=LOADING_MS)
    expect(alert).to_contain_text("Choose less memory for the pages or a shorter context")
    page.close()


def test_a_browser_without_webgpu_is_told_as_the_page_opens_with_what_else_there_is(
    without_gpu: Browser, tiny_page: PageServer
) -> None:
    page = without_gpu.new_page(service_workers="block")
    page.goto(tiny_page.url)
    told = notice(page, "This browser gives the page no GPU")
    expect(told).to_contain_text("They can run on a local worker")
