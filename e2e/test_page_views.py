"""The page as a user sees it, with the built-in model: the views that need a model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pageloom.commands.page_server import PageServer

LOADING_MS = 180_000
ANSWERING_MS = 240_000

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def page(chromium: Browser, built_page: PageServer) -> Iterator[Page]:
    page = chromium.new_page()
    page.goto(built_page.url)
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    expect(page.locator("#status")).to_contain_text("Tokens/s", timeout=LOADING_MS)
    yield page
    page.close()


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def run_batch(page: Page, template: str, rows: str, max_tokens: int) -> Locator:
    batch = show(page, "Batch")
    batch.get_by_label("Rows", exact=True).fill(rows)
    batch.get_by_label("Template").fill(template)
    batch.get_by_label("Most tokens").fill(str(max_tokens))
    batch.get_by_role("button", name=re.compile(r"^Run \d+ rows?$")).click()
    return batch


def test_a_load_tells_each_stage_and_whose_adapter_it_is(page: Page) -> None:
    model = show(page, "Models")
    for stage in ("Start Python", "Fetch the model", "Weights to the GPU", "Compile programs"):
        expect(model.get_by_role("listitem").filter(has_text=stage)).to_have_class("complete")
    expect(model.get_by_text("98.4 MB of 98.4 MB").first).to_be_visible()
    expect(page.locator("#status")).to_contain_text("software adapter: slow")


def test_a_file_that_is_no_model_leaves_the_loaded_one(page: Page) -> None:
    model = show(page, "Models")
    model.get_by_label("GGUF file").set_input_files(
        {"name": "notes.gguf", "mimeType": "application/octet-stream", "buffer": b"Dear diary"}
    )
    expect(model.get_by_role("alert")).to_contain_text("notes.gguf is not a GGUF file")
    batch = run_batch(page, "Say {word}", "one", max_tokens=1)
    expect(batch.get_by_text("1 of 1 row done")).to_be_visible(timeout=ANSWERING_MS)


def test_two_chats_answer_at_the_same_time_and_stop_each_for_itself(page: Page) -> None:
    chat = show(page, "Chat")
    for title in ("Chat 1", "Chat 2"):
        message = chat.get_by_label(f"Message in {title}")
        message.fill("Tell me a long story about a lighthouse.")
        message.press("Enter")
    panes = [chat.get_by_role("region", name=title) for title in ("Chat 1", "Chat 2")]
    answers = [pane.locator(".assistant") for pane in panes]
    for answer in answers:
        expect(answer.locator(".markdown")).to_have_text(re.compile(r"\w{2}"), timeout=ANSWERING_MS)
        expect(answer).to_have_attribute("aria-busy", "true")
    panes[0].get_by_role("button", name="Stop").click()
    expect(answers[0]).to_contain_text("(stopped)")
    before = answers[1].text_content() or ""
    expect(answers[1]).not_to_have_text(before, timeout=ANSWERING_MS)
    expect(answers[1]).to_have_attribute("aria-busy", "true")
    panes[1].get_by_role("button", name="Stop").click()
    expect(answers[1]).to_contain_text("(stopped)")


def test_the_view_inside_tells_which_pages_are_owned_and_shared(page: Page) -> None:
    beginning = "The quick brown fox jumps over the lazy dog and then it rests for a while. " * 3
    run_batch(page, f"{beginning}{{end}}", "Why?\nHow?\nWhen?", max_tokens=200)
    inside = show(page, "See inside")
    picture = inside.get_by_role("img", name=re.compile("pages of"))
    expect(picture).to_have_attribute(
        "aria-label",
        re.compile("[1-9][0-9]* owned by one request, [1-9][0-9]* shared by several"),
        timeout=ANSWERING_MS,
    )
    requests = inside.get_by_role("region", name="Live requests").locator("tbody tr")
    expect(requests.locator("th")).to_have_text(["Row 1", "Row 2", "Row 3"])
    expect(requests.first.locator("td").last).to_contain_text("shared")
    show(page, "Batch").get_by_role("button", name="Stop all").click()
    show(page, "See inside")
    expect(inside.get_by_text("No request is live.")).to_be_visible()
    expect(picture).to_have_attribute("aria-label", re.compile("0 owned by one request, 0 shared by several"))


def test_the_page_answers_at_once_while_the_worker_computes(page: Page) -> None:
    page.evaluate("""() => {
      globalThis.longest = 0;
      new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration);
      }).observe({ type: 'longtask' });
    }""")
    batch = run_batch(page, "Tell a story about {animal}.", "a cat\na dog\na fox\na hen", max_tokens=8)
    expect(batch.get_by_text("4 of 4 rows done")).to_be_visible(timeout=ANSWERING_MS)
    assert page.evaluate("longest") < 1000  # milliseconds; one step of the model takes longer


def test_home_and_end_go_to_the_first_and_the_last_view(page: Page) -> None:
    show(page, "Chat")
    for key, view in (("Home", "Models"), ("End", "Operators")):
        page.get_by_role("tab", selected=True).press(key)
        expect(page.get_by_role("tab", name=view)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=view)).to_be_visible()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_view_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("Models", "Batch", "Chat", "See inside"):
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
