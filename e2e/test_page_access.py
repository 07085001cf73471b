"""The page for everybody: checked by axe, by keyboard alone, in a narrow window, without motion, and without jumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from e2e.visit import VIEWS, Visit

AXE = Path(__file__).resolve().parents[1] / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def page(visit: Visit) -> Page:
    visit.page.evaluate(AXE.read_text())
    return visit.page


def violations(page: Page) -> list[str]:
    """What axe finds: the rule, the element and why."""
    found: list[dict[str, Any]] = page.evaluate(
        "async (rules) => (await axe.run(document, { runOnly: { type: 'tag', values: rules } })).violations", RULES
    )
    return [f"{rule['id']}: {node['target']} {node['failureSummary']}" for rule in found for node in rule["nodes"][:3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_in_any_view(page: Page, view: str, scheme: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.get_by_role("tab", name=view).click()
    assert violations(page) == []


def test_axe_finds_nothing_in_the_form_of_the_local_worker_and_its_refusal(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.get_by_role("tab", name="Models").click()
    page.get_by_label("on a local worker").check()
    page.get_by_label("Address", exact=True).fill("http://127.0.0.1:9")
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("alert")).to_contain_text("pageloom serve --port 9 --allow-origin http://127.0.0.1")
    assert violations(page) == []
    page.get_by_label("in this tab").check()
    expect(page.get_by_label("Address", exact=True)).to_be_hidden()


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_scrolls_sideways_in_a_window_of_360_pixels(page: Page, view: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("tab", name=view).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_every_control_of_a_view_is_reached_by_the_tab_key_and_shows_it(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    for view in VIEWS:
        page.get_by_role("tab", name=view).click()
        wanted = page.evaluate("""() => {
          const seen = [...document.querySelectorAll('main button, main input, main select, main textarea')].filter(
            (node) => !node.disabled && node.checkVisibility({ visibilityProperty: true }) && node.tabIndex === 0,
          );
          const groups = new Set();
          const isFirst = ({ name }) => !groups.has(name) && groups.add(name);
          const single = seen.filter((node) => node.type !== 'radio' || isFirst(node));
          globalThis.reached = new Set();
          return single.length;
        }""")
        for _ in range(3 * wanted + 20):
            page.keyboard.press("Tab")
            is_first_again = page.evaluate("""() => {
              const node = document.activeElement;
              const key = node.type === 'radio' ? node.name : node;
              if (reached.has(key)) return true;
              if (node.matches('main button, main input, main select, main textarea')) {
                reached.add(key);
                const { outlineStyle, boxShadow } = getComputedStyle(node);
                const isSeen = outlineStyle !== 'none' || boxShadow !== 'none';
                if (!isSeen) throw new Error(`no focus is seen: ${node.outerHTML}`);
              }
              return false;
            }""")
            if is_first_again:
                break
        assert page.evaluate("reached.size") >= wanted, view


def test_nothing_moves_where_motion_is_unwelcome(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    for view in VIEWS:
        page.get_by_role("tab", name=view).click()
        moving = page.evaluate("""() => document.getAnimations()
          .filter(({ playState, effect }) => playState === 'running' && effect.getComputedTiming().duration > 1)
          .map(({ effect }) => effect.target.outerHTML.slice(0, 100))""")
        assert moving == [], view


def test_nothing_jumps_while_the_page_opens_and_a_model_is_loaded_and_answers(visit: Visit) -> None:
    assert sum(value for value, _ in visit.shifts) < 0.02, visit.shifts
