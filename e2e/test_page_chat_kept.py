"""The chat view: what this browser keeps of the chats. No model is loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from e2e.chat_kit import edit_message, exported, show
from e2e.kept import with_kept
from pageloom.commands.page_server import PageServer

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
(chats, content) => chats.put({
  id: 'kept', number: 700, open: true, changed: new Date().toISOString(), settings: { system: 'Be brief.' },
  nodes: [
    { parent: -1, role: 'user', content: 'Show me <b>Markdown</b>' },
    { parent: 0, role: 'assistant', content, state: 'whole' },
    { parent: 0, role: 'assistant', content: 'Half of it', state: 'answering' },
  ],
  chosen: { '-1': 0, 0: 1 },
})
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def page(chromium: Browser, tiny_page: PageServer) -> Iterator[Page]:
    """The chat view of a browser that has kept nothing yet."""
    context = chromium.new_context(service_workers="block", permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{tiny_page.url}#chat")
    expect(page.get_by_role("region", name="Chat 1")).to_be_visible()
    yield page
    context.close()


def test_an_edit_without_a_model_says_why_it_is_not_answered_and_changes_nothing(page: Page) -> None:
    with_kept(page, ["chats"], KEEP, "It pulls.")
    page.reload()
    pane = page.get_by_role("region", name="Chat 700")
    before = exported(pane)
    edit_message(pane, "What is light?")
    expect(pane.get_by_role("alert")).to_have_text("Load a model to chat")
    expect(pane.get_by_role("textbox", name="Your message")).to_have_value("What is light?")
    assert exported(pane) == before


def test_a_second_tab_is_told_that_its_chats_are_not_kept(chromium: Browser, tiny_page: PageServer) -> None:
    context = chromium.new_context(service_workers="block")
    for told in (0, 1):
        page = context.new_page()
        page.goto(f"{tiny_page.url}#chat")
        expect(page.get_by_role("region", name="Chat 1")).to_be_visible()
        expect(page.get_by_text("Another tab of this page keeps the chats")).to_have_count(told)
    context.close()


def test_a_reload_keeps_chats_and_markdown_in_them_neither_runs_nor_fetches(page: Page) -> None:
    fetched: list[str] = []

    def note(request: Request) -> None:
        fetched.append(request.url)

    with_kept(page, ["chats"], KEEP, MARKDOWN)
    page.on("request", note)
    page.reload()
    chat = show(page, "Chat")
    expect(chat.get_by_role("complementary").get_by_role("button", name="Show me")).to_have_count(1)
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


def test_a_chat_that_is_damaged_is_told_of_and_the_others_are_there(page: Page) -> None:
    with_kept(page, ["chats"], KEEP, "It pulls.")
    with_kept(page, ["chats"], "(chats) => chats.put({ id: 'damaged', nodes: 'none' })")
    page.reload()
    expect(page.get_by_text("1 chat of this browser’s could not be read")).to_be_visible()
    expect(page.get_by_role("region", name="Chat 700")).to_contain_text("It pulls.")
