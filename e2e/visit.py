"""A visit of the page that several modules of tests share: a tiny model has answered a batch of twenty rows."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Page, expect

LOADING_MS = 180_000
VIEWS = ("Models", "Batch", "Chat", "See inside", "Operators")
NOTE_SHIFTS = """
globalThis.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput, sources } of list.getEntries()) {
    if (!hadRecentInput) shifts.push([value, sources.map(({ node }) => node?.outerHTML?.slice(0, 90)).join()]);
  }
}).observe({ type: 'layout-shift', buffered: true });
"""


@dataclass(frozen=True)
class Visit:
    page: Page
    console: list[str]
    """What the page says on its console."""
    shifts: list[tuple[float, str]]
    """What moved by itself until the answers were there: how far, as browsers measure it, and the markup."""


def begin_visit(page: Page, url: str) -> Visit:
    """Open the page, load its model and run its first example."""
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.add_init_script(NOTE_SHIFTS)
    page.goto(url)
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=LOADING_MS)
    page.get_by_role("button", name="Ask the same of 20 rows").click()
    page.get_by_role("button", name="Run 20 rows").click()
    expect(page.get_by_text("20 of 20 rows done")).to_be_visible(timeout=LOADING_MS)
    return Visit(page, console, page.evaluate("shifts"))
