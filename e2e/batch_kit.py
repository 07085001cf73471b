"""What tests of the batch view do on it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator

LOADING_MS = 180_000
ANSWERING_MS = 120_000
RUN = re.compile(r"^Run \d+ rows?( again)?$")


def choose(batch: Locator, menu: str, item: str) -> None:
    batch.get_by_role("button", name=menu, exact=True).click()
    batch.get_by_role("button", name=item, exact=True).click()


def fill(batch: Locator, template: str, rows: str, max_tokens: int) -> None:
    batch.get_by_label("Rows", exact=True).fill(rows)
    batch.get_by_label("Template").fill(template)
    batch.get_by_label("Most tokens").fill(str(max_tokens))


def run(batch: Locator) -> None:
    batch.get_by_role("button", name=RUN).click()


def lines(batch: Locator) -> Locator:
    """The rows that are in the document, in their order on the page."""
    return batch.locator(".grid-row")


def line(batch: Locator, number: int) -> Locator:
    return batch.locator(f"#batch-row-{number - 1}")


def state(batch: Locator, number: int) -> Locator:
    return line(batch, number).locator(".state")


def downloaded(batch: Locator, kind: str) -> str:
    with batch.page.expect_download() as download:
        choose(batch, "Export", f"Export {kind}")
    return Path(download.value.path()).read_text()
