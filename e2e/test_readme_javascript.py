"""The README's JavaScript runs as it stands, in a page beside the built files."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from pageloom.commands.page_server import PageServer
from tests.readme import blocks


@pytest.mark.timeout(300)
def test_the_readmes_javascript_gives_openais_shapes(chromium: Browser, built_page: PageServer) -> None:
    (code,) = blocks("js")
    shown = f"<script type=module>{code}\nglobalThis.shown = {{ answer, rows }};</script>"
    address = f"{built_page.url}readme.html"
    page = chromium.new_page()
    page.route(address, lambda route: route.fulfill(content_type="text/html", body=shown))
    page.goto(address)
    page.wait_for_function("() => globalThis.shown", timeout=240_000)
    answer, rows = page.evaluate("() => [shown.answer, shown.rows]")
    page.close()
    assert answer["object"] == "chat.completion"
    assert "grav" in answer["choices"][0]["message"]["content"].lower()
    assert [row["usage"]["completion_tokens"] for row in rows] == [4, 4]
