"""What tests of the chat view do on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def exported(pane: Locator) -> dict[str, Any]:
    with pane.page.expect_download() as download:
        pane.get_by_role("button", name="Export as JSON").click()
    chat: dict[str, Any] = json.loads(Path(download.value.path()).read_text())
    return chat


def edit_message(pane: Locator, text: str) -> None:
    """Edits the first message, and sends it."""
    pane.get_by_role("button", name="Edit your message and branch").first.click()
    edited = pane.get_by_role("textbox", name="Your message")
    edited.fill(text)
    edited.press("Enter")
