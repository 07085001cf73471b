"""picture.py OUT.png: the real page after it has answered its own example rows, in a headless browser."""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from pageloom.commands.browser import browser_flags, find_browser
from pageloom.commands.page_files import DEFAULT_MODEL, find_page
from pageloom.commands.page_server import PageServer, serving

LOADING_MS = 120_000
ANSWERING_MS = 600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        serving(PageServer({"": find_page(), "model": DEFAULT_MODEL})) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find_browser(), args=browser_flags("auto"))
        page = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=1.5)
        page.goto(f"{server.url}?model=built-in")
        batch = page.get_by_role("tabpanel", name="Batch")
        expect(batch).to_be_visible(timeout=LOADING_MS)
        batch.get_by_role("button", name="Ask the same of 20 rows").click()
        batch.get_by_role("button", name="Run 20 rows").click()
        expect(page.get_by_text("20 of 20 rows done")).to_be_visible(timeout=ANSWERING_MS)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    main()
