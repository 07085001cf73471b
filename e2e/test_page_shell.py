"""What is around the views: the policy, the page without a network, its size and its speed."""

from __future__ import annotations

import gzip
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from e2e.visit import LOADING_MS, VIEWS, Visit
from pageloom.commands.page_files import find_page
from pageloom.commands.page_server import PageServer, serving

OWN_BYTES = 600_000
NOT_OWN = ("pyodide/", "wheels/jinja2", "wheels/markupsafe", "wheels/micropip", "vectors/")
"""The interpreter, others' wheels, and the conformance cases, which are data that only their view fetches."""
ATTEMPTS = 6
"""A figure of time is of the page's making if one run of these reaches it: others of the machine only ever add."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A profile of its own, with service workers."""
    context = chromium.new_context()
    yield context
    context.close()


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def best_of(measure: Callable[[], float], limit: float) -> float:
    """The smallest of some measurements, of which there are no more once one keeps the limit."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        best = min(best, measure())
        if best < limit:
            break
    return best


def test_nothing_that_the_page_does_breaks_its_policy_and_what_is_injected_does_not_run(
    visit: Visit, tiny_page: PageServer
) -> None:
    page, console = visit.page, visit.console
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy is not None
    assert page.request.get(tiny_page.url).headers["content-security-policy"] == f"{policy}; frame-ancestors 'none'"
    assert "'unsafe-" not in policy
    for view in VIEWS:
        show(page, view)
    assert [text for text in console if "Content Security Policy" in text] == []
    page.evaluate("""() => {
      const script = document.createElement('script');
      script.textContent = 'globalThis.injected = true';
      document.head.append(script);
    }""")
    assert page.evaluate("globalThis.injected") is None
    assert any("Content Security Policy" in text for text in console)


def test_the_page_and_a_kept_model_work_without_a_network(context: BrowserContext, tiny_page: PageServer) -> None:
    page = context.new_page()
    page.goto(tiny_page.url)
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    stages = page.get_by_role("listitem")
    expect(stages.filter(has_text="Weights to the GPU")).to_be_visible(timeout=LOADING_MS)
    page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    context.set_offline(True)
    page.reload()
    page.get_by_role("button", name=re.compile("^Load (this copy of )?.*gguf")).click()
    expect(stages.filter(has_text="Compile programs")).to_be_visible(timeout=LOADING_MS)


def test_a_newer_version_starts_when_the_user_says_so_and_other_tabs_are_told(
    context: BrowserContext, tmp_path: Path
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(find_page(), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with serving(PageServer({"": folder})) as server:
        page = context.new_page()
        page.goto(server.url)
        page.evaluate("async () => { await navigator.serviceWorker.ready; }")
        page.reload()
        other = context.new_page()
        other.goto(server.url)
        entry = folder / "index.html"
        entry.write_text(entry.read_text().replace("<title>Pageloom", "<title>Newer"))
        script = folder / "service_worker.js"
        marker = '"index.html"' if '"index.html"' in script.read_text() else "`index.html`"
        script.write_text(script.read_text().replace(f"url:{marker},revision:", f"url:{marker},revision:`1`+"))
        page.evaluate("async () => (await navigator.serviceWorker.ready).update()")
        expect(page.get_by_role("status").filter(has_text="newer version")).to_be_visible(timeout=LOADING_MS)
        assert page.title() == "Pageloom"
        with page.expect_navigation():
            page.get_by_role("button", name="Start it now").click()
        assert page.title() == "Newer"
        expect(other.get_by_role("status").filter(has_text="started in another tab")).to_be_visible()
        expect(other.get_by_role("button", name="Start it now")).to_have_count(0)
        assert other.title() == "Pageloom"
        with other.expect_navigation():
            other.get_by_role("button", name="Reload").click()
        assert other.title() == "Newer"


def test_own_code_and_assets_are_under_600_kilobytes() -> None:
    """As a web server sends them: text is compressed, what is an archive already is not again."""
    page = find_page()
    names = (str(path.relative_to(page)) for path in page.rglob("*") if path.is_file())
    own = {name: len(gzip.compress((page / name).read_bytes())) for name in names if not name.startswith(NOT_OWN)}
    assert any(name.startswith("wheels/pageloom") for name in own)
    assert sum(own.values()) < OWN_BYTES, sorted(own.items(), key=lambda item: -item[1])[:8]


def test_the_first_view_is_painted_within_a_second(chromium: Browser, tiny_page: PageServer) -> None:
    def milliseconds() -> float:
        """To the largest paint, with an empty cache."""
        page = chromium.new_page(service_workers="block")
        page.goto(tiny_page.url)
        expect(page.get_by_role("button", name="Load SmolLM2 135M Instruct")).to_be_visible()
        found: float = page.evaluate("""() => new Promise((resolve) => {
          const observer = new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime));
          observer.observe({ type: 'largest-contentful-paint', buffered: true });
        })""")
        page.close()
        return found

    assert best_of(milliseconds, 1000) < 1000


@pytest.mark.slow
def test_input_waits_for_nothing_while_sixteen_sequences_decode(visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("""() => {
      globalThis.delays = [];
      new PerformanceObserver((list) => {
        for (const { processingStart, startTime } of list.getEntries()) delays.push(processingStart - startTime);
      }).observe({ type: 'event', durationThreshold: 16 });
      new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) delays.push(duration);
      }).observe({ type: 'longtask' });
    }""")
    batch = show(page, "Batch")
    batch.get_by_role("textbox", name="Rows").fill("\n".join(["n,word", *(f"{n},w{n}" for n in range(60))]))
    batch.get_by_label("Most tokens").fill("300")
    turns = itertools.count()

    def longest() -> float:
        show(page, "Batch")
        batch.get_by_label("Template", exact=True).fill(f"Say {{word}}, {next(turns)}")
        batch.get_by_role("button", name=re.compile("^Run 60 rows")).click()
        running = page.locator("#status div").filter(has_text="Running").locator("dd")
        expect(running).to_have_text(re.compile("^(1[6-9]|[2-9][0-9])$"), timeout=LOADING_MS)
        page.evaluate("() => { delays.length = 0; }")
        page.get_by_role("tab", name="Batch").focus()
        for key in ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"] * 4:
            page.keyboard.press(key)
        expect(running).to_have_text(re.compile("^(1[6-9]|[2-9][0-9])$"))
        found: list[float] = page.evaluate("delays")
        batch.get_by_role("button", name="Stop all").click()
        return max(found, default=0)

    assert best_of(longest, 100) <= 100
