"""Chats: branches, what a reload keeps, Markdown, the context. A tiny model of random weights answers: what it says
does not matter here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, expect

from pageloom.commands.page_server import PageServer

LOADING_MS = 120_000
ANSWERING_MS = 60_000

MARKDOWN = """# Heading

Some **bold** text with [a link](https://example.org/page), [a trap](javascript:window.trapped=1) and &lt;entities&gt;.

![picture](https://example.org/picture.png)

<img src=x onerror="window.trapped = 1"><script>window.trapped = 1</script>

```python
print("<b>hello</b>")
```

| a | b |
|---|---|
| 1 | 2 |
"""

KEEP = """
async (content) => {
  const database = await new Promise((resolve, reject) => {
    const request = indexedDB.open('pageloom');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const transaction = database.transaction('chats', 'readwrite');
  transaction.objectStore('chats').put({
    id: 'kept', number: 700, open: true, changed: new Date().toISOString(), settings: { system: 'Be brief.' },
    nodes: [
      { parent: -1, role: 'user', content: 'Show me <b>Markdown</b>' },
      { parent: 0, role: 'assistant', content, state: 'whole' },
      { parent: 0, role: 'assistant', content: 'Half of it', state: 'answering' },
    ],
    chosen: { '-1': 0, 0: 1 },
  });
  await new Promise((resolve) => { transaction.oncomplete = resolve; });
  database.close();
}
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def page(chromium: Browser, tiny_page: PageServer) -> Iterator[Page]:
    context = chromium.new_context(service_workers="block", permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(tiny_page.url)
    load(page)
    yield page
    context.close()


def load(page: Page) -> None:
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    expect(page.locator("#status")).to_contain_text("Tokens/s", timeout=LOADING_MS)


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def new_chat(page: Page, **settings: float) -> Locator:
    """A chat of its own for a test, with greedy answers; `settings` by the labels of their fields."""
    chat = show(page, "Chat")
    chat.get_by_role("button", name="New chat").click()
    pane = chat.locator("section.chat").last
    pane.get_by_text("Settings", exact=True).click()
    for label, value in {"Temperature": 0, **settings}.items():
        pane.get_by_label(label.replace("_", " "), exact=True).fill(str(value))
    pane.get_by_text("Settings", exact=True).click()
    return pane


def say(pane: Locator, text: str) -> None:
    message = pane.get_by_role("textbox", name=re.compile("^Message in"))
    message.fill(text)
    message.press("Enter")


def exported(pane: Locator) -> dict[str, Any]:
    with pane.page.expect_download() as download:
        pane.get_by_role("button", name="Export as JSON").click()
    chat: dict[str, Any] = json.loads(Path(download.value.path()).read_text())
    return chat


def wait_for_answers(pane: Locator) -> None:
    expect(pane.locator(".assistant").last).to_have_attribute("aria-busy", "false", timeout=ANSWERING_MS)


def edit_message(pane: Locator, text: str) -> None:
    """Edits the first message, and sends it."""
    pane.get_by_role("button", name="Edit your message and branch").first.click()
    edited = pane.get_by_role("textbox", name="Your message")
    edited.fill(text)
    edited.press("Enter")


def test_an_edited_message_and_a_second_answer_are_branches_that_can_be_switched(page: Page) -> None:
    pane = new_chat(page, Most_tokens=8)
    say(pane, "What is gravity?")
    wait_for_answers(pane)
    say(pane, "And light?")
    wait_for_answers(pane)
    expect(pane.locator(".message")).to_have_count(4)
    edit_message(pane, "What is time?")
    wait_for_answers(pane)
    messages = pane.locator(".message")
    expect(messages).to_have_count(2)
    expect(messages.first).to_contain_text("What is time?")
    expect(pane.locator(".log")).to_be_focused()
    pane.get_by_role("group", name="Branch 2 of 2").get_by_role("button", name="Branch before").click()
    expect(messages).to_have_count(4)
    expect(messages.first).to_contain_text("What is gravity?")
    expect(pane.get_by_role("button", name="Next branch")).to_be_focused()
    pane.get_by_role("button", name="Answer again").last.click()
    wait_for_answers(pane)
    expect(pane.locator(".log")).to_be_focused()
    expect(pane.get_by_role("group", name="Branch 2 of 2")).to_have_count(1)
    expect(pane.get_by_role("group", name="Branch 1 of 2")).to_have_count(1)


def test_branches_that_are_answered_at_the_same_time_share_their_pages_and_the_picture_shows_it(page: Page) -> None:
    pane = new_chat(page, Most_tokens=400)
    say(pane, "Hello world. " * 12)
    expect(pane.locator(".assistant .markdown")).to_have_text(re.compile(r"\S{4}"), timeout=ANSWERING_MS)
    for _ in range(2):
        pane.get_by_role("button", name="Answer again").click()
    inside = show(page, "See inside")
    requests = inside.get_by_role("region", name="Live requests").locator("tbody tr")
    expect(requests.filter(has_text="branch 3").locator("td").last).to_contain_text("shared", timeout=ANSWERING_MS)
    expect(inside.get_by_role("img", name=re.compile("[1-9][0-9]* shared by several"))).to_be_visible()
    for _ in range(3):
        pane = show(page, "Chat").locator("section.chat").last
        if pane.get_by_role("button", name="Stop").is_enabled():
            pane.get_by_role("button", name="Stop").click()
        before = pane.get_by_role("button", name="Branch before")
        if before.is_enabled():
            before.click()
    wait_for_answers(pane)


def test_enter_sends_shift_enter_breaks_the_line_and_the_focus_stays(page: Page) -> None:
    pane = new_chat(page, Most_tokens=4)
    message = pane.get_by_role("textbox", name=re.compile("^Message in"))
    message.press_sequentially("one")
    message.press("Shift+Enter")
    message.press_sequentially("two")
    message.press("Enter")
    expect(message).to_be_focused()
    expect(message).to_have_value("")
    assert pane.locator(".user .bubble-body").inner_text() == "one\ntwo"
    wait_for_answers(pane)
    pane.get_by_role("button", name="Copy your message").click()
    assert page.evaluate("navigator.clipboard.readText()") == "one\ntwo"
    pane.get_by_role("button", name="Close this chat").click()
    expect(page.get_by_role("button", name="New chat")).to_be_focused()


def test_the_context_is_counted_and_a_message_that_overflows_it_cannot_be_sent(page: Page) -> None:
    pane = new_chat(page, Most_tokens=100)
    message = pane.get_by_role("textbox", name=re.compile("^Message in"))
    send = pane.get_by_role("button", name="Send")
    message.fill("hello " * 20)
    context = pane.locator(".context")
    expect(context).to_contain_text("of 512 tokens")
    expect(context).not_to_contain_text("room for")
    message.fill("hello " * 170)
    expect(context).to_contain_text(re.compile("room for [0-9]+ more tokens"))
    expect(send).to_be_enabled()
    message.fill("hello " * 300)
    expect(context).to_contain_text("The context is full")
    expect(send).to_be_disabled()
    message.fill("")


def test_a_chat_is_exported_as_markdown_and_json_and_a_deleted_one_comes_back_with_undo(page: Page) -> None:
    pane = new_chat(page, Most_tokens=4, Seed=5)
    say(pane, "Export me")
    wait_for_answers(pane)
    with page.expect_download() as download:
        pane.get_by_role("button", name="Export as Markdown").click()
    assert Path(download.value.path()).read_text().startswith("# Export me\n")
    as_json = exported(pane)
    assert as_json["settings"]["seed"] == 5
    assert [message["role"] for message in as_json["messages"]] == ["user", "assistant"]
    pane.get_by_role("button", name="Delete this chat").click()
    expect(page.get_by_role("button", name="New chat")).to_be_focused()
    kept = show(page, "Chat").get_by_role("complementary").get_by_role("button", name="Export me")
    expect(kept).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(kept).to_have_count(1)
    expect(page.get_by_role("heading", name="Export me")).to_be_visible()


def test_an_edit_with_a_wrong_number_in_the_settings_shows_it_and_changes_nothing(page: Page) -> None:
    pane = new_chat(page, Most_tokens=4)
    say(pane, "Hello")
    wait_for_answers(pane)
    before = exported(pane)
    temperature = pane.get_by_label("Temperature", exact=True)
    pane.get_by_text("Settings", exact=True).click()
    temperature.fill("9")
    pane.get_by_text("Settings", exact=True).click()
    expect(temperature).to_be_hidden()
    edit_message(pane, "Goodbye")
    expect(temperature).to_be_visible()
    expect(pane.get_by_role("textbox", name="Your message")).to_have_value("Goodbye")
    assert exported(pane) == before


def test_an_edit_without_a_model_says_why_it_is_not_answered_and_changes_nothing(
    chromium: Browser, tiny_page: PageServer
) -> None:
    context = chromium.new_context(service_workers="block")
    page = context.new_page()
    page.goto(f"{tiny_page.url}#chat")
    expect(page.get_by_role("region", name="Chat 1")).to_be_visible()
    page.evaluate(KEEP, "It pulls.")
    page.reload()
    pane = page.get_by_role("region", name="Chat 700")
    before = exported(pane)
    edit_message(pane, "What is light?")
    expect(pane.get_by_role("alert")).to_have_text("Load a model to chat")
    expect(pane.get_by_role("textbox", name="Your message")).to_have_value("What is light?")
    assert exported(pane) == before
    context.close()


def test_a_second_tab_is_told_that_its_chats_are_not_kept(chromium: Browser, tiny_page: PageServer) -> None:
    context = chromium.new_context(service_workers="block")
    for told in (0, 1):
        page = context.new_page()
        page.goto(f"{tiny_page.url}#chat")
        expect(page.get_by_role("region", name="Chat 1")).to_be_visible()
        expect(page.get_by_text("Another tab of this page keeps the chats")).to_have_count(told)
    context.close()


def test_the_log_follows_an_answer_only_while_the_reader_is_at_its_end(page: Page) -> None:
    pane = new_chat(page, Most_tokens=40)
    log = pane.locator(".log")
    say(pane, "\n".join("hello" for _ in range(60)))
    wait_for_answers(pane)
    assert log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight < 2")
    pane.get_by_role("button", name="Answer again").click()
    log.evaluate("log => { log.scrollTop = 0; }")
    wait_for_answers(pane)
    expect(pane.locator(".assistant .markdown")).to_have_text(re.compile(r"\S{4}"))
    assert log.evaluate("log => log.scrollTop") == 0


def test_a_reload_keeps_chats_and_markdown_in_them_neither_runs_nor_fetches(page: Page) -> None:
    fetched: list[str] = []

    def note(request: Request) -> None:
        fetched.append(request.url)

    page.evaluate(KEEP, MARKDOWN)
    page.on("request", note)
    page.reload()
    chat = show(page, "Chat")
    expect(chat.get_by_role("complementary").get_by_role("button", name="Export me")).to_have_count(1)
    pane = chat.get_by_role("region", name="Chat 700")
    expect(pane.locator(".user .bubble-body")).to_have_text("Show me <b>Markdown</b>")
    answer = pane.locator(".markdown")
    expect(answer.get_by_role("heading", name="Heading")).to_be_visible()
    link = answer.get_by_role("link", name="a link")
    expect(link).to_have_attribute("href", "https://example.org/page")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(answer).to_contain_text("[a trap](javascript:window.trapped=1)")
    expect(answer).to_contain_text("<entities>")
    expect(answer).to_contain_text("<script>window.trapped = 1</script>")
    expect(answer.locator("pre")).to_have_text('print("<b>hello</b>")')
    expect(answer.get_by_role("cell", name="2")).to_be_visible()
    expect(answer.locator("img, script")).to_have_count(0)
    assert page.evaluate("window.trapped") is None
    assert not [url for url in fetched if "example.org" in url]
    answer.get_by_role("button", name="Copy this code").click()
    assert page.evaluate("navigator.clipboard.readText()") == 'print("<b>hello</b>")'
    pane.get_by_role("button", name="Next branch").click()
    expect(pane.locator(".assistant")).to_contain_text("Half of it")
    expect(pane.locator(".assistant")).to_contain_text("(stopped)")
    pane.get_by_text("Settings", exact=True).click()
    expect(pane.get_by_label("System prompt")).to_have_value("Be brief.")
