"""Chats: branches, messages, the context. A tiny model of random weights answers: what it says
does not matter here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from e2e.chat_kit import edit_message, exported, show
from e2e.kept import with_kept
from pageloom.commands.page_server import PageServer

LOADING_MS = 120_000
ANSWERING_MS = 60_000

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


def wait_for_answers(pane: Locator) -> None:
    expect(pane.locator(".assistant").last).to_have_attribute("aria-busy", "false", timeout=ANSWERING_MS)


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
    stored = with_kept(page, ["chats"], "(chats) => chats.getAll()")
    said = [[node["content"] for node in chat["nodes"]] for chat in stored]
    assert [message["content"] for message in as_json["messages"]] in said


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
