"""What the view inside shows of a small pool that overflows: whose its pages are, what is given up, steps, memory.
A tiny model of random weights answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pageloom.commands.page_server import PageServer
from tests.tiny_model import write_tiny_model

LOADING_MS = 120_000
ANSWERING_MS = 60_000
RUN = re.compile(r"^Run \d+ rows?( again)?$")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def page(chromium: Browser, tiny_page: PageServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A pool of 256 pages, which is 1 MiB."""
    model: Path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    context = chromium.new_context(service_workers="block", reduced_motion="reduce")
    page = context.new_page()
    page.goto(tiny_page.url)
    page.get_by_label("GGUF file").set_input_files(model)
    panel = page.get_by_role("region", name="About tiny.gguf")
    panel.get_by_label("Memory for the KV cache").fill("1", timeout=LOADING_MS)
    expect(panel).to_contain_text("room for 4,096 tokens")
    panel.get_by_role("button", name="Load").click()
    expect(page.locator("#status")).to_contain_text("of 256", timeout=LOADING_MS)
    yield page
    context.close()


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def figure(inside: Locator, name: str) -> Locator:
    return inside.locator(".tiles > div").filter(has_text=name).locator("dd").first


def run_batch(page: Page, template: str, rows: list[str], max_tokens: int) -> Locator:
    batch = show(page, "Batch")
    batch.get_by_label("Rows", exact=True).fill("\n".join(rows))
    batch.get_by_label("Template").fill(template)
    batch.get_by_label("Most tokens").fill(str(max_tokens))
    batch.get_by_role("button", name=RUN).click()
    return batch


def test_pointing_at_a_page_or_moving_to_it_tells_whose_it_is(page: Page) -> None:
    rows = [f"row {number}" for number in range(60)]
    batch = run_batch(page, "{name} " + "hello " * 60, rows, max_tokens=300)
    inside = show(page, "See inside")
    request = inside.get_by_role("region", name="Live requests").get_by_role("button").first
    expect(request).to_be_visible(timeout=ANSWERING_MS)
    picture = inside.get_by_role("img", name=re.compile("^256 pages of 16 tokens"))
    picture.focus()
    for _ in range(2):
        picture.press("ArrowRight")
    expect(inside.get_by_text(re.compile(r"^Page 1: (owned|shared) by Row \d"))).to_be_visible()
    picture.hover(position={"x": 2, "y": 2})
    expect(inside.get_by_text(re.compile("^Page 0: "))).to_be_visible()
    request.focus()
    expect(request).to_be_focused()
    show(page, "Batch")
    batch.get_by_role("button", name="Stop all").click()
    expect(batch.get_by_role("button", name="Stop all")).to_be_disabled()


def test_kept_pages_are_counted_and_given_up_for_new_ones_and_the_view_says_so(page: Page) -> None:
    inside = show(page, "See inside")
    evictions = figure(inside, "Evictions")
    before = int(evictions.inner_text())
    rows = [f"{number} {letter}" for number, letter in enumerate("abcdefghijkl")]
    batch = run_batch(page, "{row} " + "hello " * 170, rows, max_tokens=1)
    expect(batch.get_by_text("12 of 12 rows done")).to_be_visible(timeout=ANSWERING_MS)
    show(page, "See inside")
    expect(evictions).not_to_have_text(str(before))
    picture = inside.get_by_role("img", name=re.compile("^256 pages"))
    expect(picture).to_have_attribute("aria-label", re.compile("0 owned by one request, 0 shared by several, [1-9]"))


def test_steps_times_and_memory_are_told_in_words_too(page: Page) -> None:
    inside = show(page, "See inside")
    expect(
        inside.get_by_role("img", name=re.compile(r"The last \d+ steps computed [1-9]\d* prompt tokens"))
    ).to_be_visible()
    expect(figure(inside, "First token after")).to_have_text(re.compile(r"^\d+(\.\d)? m?s$"))
    expect(figure(inside, "Tokens a second")).to_have_text(re.compile(r"^\d+\.\d$"))
    ended = inside.get_by_role("region", name="Requests that ended").locator("tbody tr")
    expect(ended).to_have_count(12)
    expect(ended.first.locator("th")).to_have_text(re.compile("^Row 1?[0-9]$"))
    expect(inside.get_by_text("105 kB weights")).to_be_visible()
    expect(inside.get_by_text("0 kB pages in use")).to_be_visible()
    expect(inside.get_by_text("A software adapter computes here")).to_be_visible()
