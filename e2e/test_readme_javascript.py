"""The README's JavaScript runs as it stands, in a page beside the built files."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from pageloom.commands.page_files import DEFAULT_MODEL, find_page
from pageloom.commands.page_server import PageServer, serving
from tests.readme import blocks


@pytest.mark.timeout(300)
def test_the_readmes_javascript_gives_openais_shapes(chromium: Browser) -> None:
    (code,) = blocks("js")
    shown = f"<script type=module>{code}\nglobalThis.shown = {{ answer, rows }};</script>"
    page = chromium.new_page()
    with serving(PageServer({"": find_page(), "model": DEFAULT_MODEL})) as server:
        address = f"{server.url}readme.html"
        page.route(address, lambda route: route.fulfill(content_type="text/html", body=shown))
        page.goto(address)
        page.wait_for_function("() => globalThis.shown", timeout=240_000)
        answer, rows = page.evaluate("() => [shown.answer, shown.rows]")
        page.close()
    assert answer["object"] == "chat.completion"
    assert "grav" in answer["choices"][0]["message"]["content"].lower()
    assert [row["usage"]["completion_tokens"] for row in rows] == [4, 4]
