"""The batch view: what is kept of a batch, and what can be taken back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, expect

from e2e.batch_kit import ANSWERING_MS, LOADING_MS, choose, fill, line, lines, run, state
from e2e.kept import with_kept
from pageloom.commands.page_server import PageServer

pytestmark = pytest.mark.timeout(600)


def test_answers_that_were_cleared_come_back_by_undo(batch: Locator) -> None:
    fill(batch, "{word}", "a\nb", 2)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    choose(batch, "Clear", "Clear everything")
    expect(batch.get_by_role("heading", name="Many rows, one prompt")).to_be_visible()
    batch.get_by_role("button", name="Undo").click()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible()
    expect(batch.get_by_label("Template")).to_have_value("{word}")


def test_a_run_survives_undo_and_a_reload_and_goes_on_with_one_click(batch: Locator) -> None:
    fill(batch, "Count from {start}", "1\n2", 300)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    answers = [line(batch, number).locator(".output").text_content() for number in (1, 2)]
    choose(batch, "Clear", "Clear the answers")
    expect(batch.get_by_text("2 of 2 rows done")).to_have_count(0)
    batch.get_by_role("button", name="Undo").click()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible()
    batch.get_by_label("Rows", exact=True).fill("1\n2\n3\n4")
    batch.get_by_role("button", name="Run 2 rows", exact=True).click()
    expect(state(batch, 4)).to_have_text(re.compile("waiting|running"))
    batch.page.reload()
    expect(batch.get_by_text("2 of 4 rows done")).to_be_visible()
    expect(state(batch, 4)).to_have_text("not run")
    expect(batch.get_by_label("Template")).to_have_value("Count from {start}")
    batch.get_by_role("button", name=re.compile("^Load SmolLM2.* and run 2 rows")).click()
    expect(batch.get_by_text("4 of 4 rows done")).to_be_visible(timeout=LOADING_MS)
    assert [line(batch, number).locator(".output").text_content() for number in (1, 2)] == answers


def test_a_second_tab_is_told_that_its_batch_is_not_kept(chromium: Browser, tiny_page: PageServer) -> None:
    context = chromium.new_context()
    for told in (0, 1):
        page = context.new_page()
        page.goto(f"{tiny_page.url}#batch")
        expect(page.get_by_role("heading", name="Many rows, one prompt")).to_be_visible()
        expect(page.get_by_text("Another tab of this page keeps its batch")).to_have_count(told)
    context.close()


@pytest.mark.parametrize(
    "breaking",
    [
        "IDBFactory.prototype.open = () => { throw new DOMException('not here', 'SecurityError'); }",
        "IDBObjectStore.prototype.put = () => { throw new DOMException('no room', 'QuotaExceededError'); }",
    ],
)
def test_a_batch_that_cannot_be_kept_says_so_and_goes_on(
    chromium: Browser, tiny_page: PageServer, breaking: str
) -> None:
    page = chromium.new_page()
    page.add_init_script(breaking)
    page.goto(f"{tiny_page.url}#batch")
    page.get_by_role("button", name="Ask the same of 20 rows").click()
    expect(page.get_by_text("This batch is no longer kept")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("run 20 rows$"))).to_be_enabled()
    page.close()


def test_what_is_damaged_of_a_kept_batch_is_told_and_the_rest_is_there(
    chromium: Browser, tiny_page: PageServer
) -> None:
    context = chromium.new_context(service_workers="block")
    page = context.new_page()
    page.goto(f"{tiny_page.url}#batch")
    batch = page.get_by_role("tabpanel", name="Batch")
    fill(batch, "Say {word}", "word,n\na,1\nb,2\nc,3", 4)
    expect(lines(batch)).to_have_count(3)
    with_kept(
        page,
        ["rows"],
        """(rows) => {
          rows.put({ run: 'batch', index: 0, values: null, outcome: null });
          return rows.put({ run: 'batch', index: 2, values: { word: 'c', n: '3' }, outcome: { state: 'lost' } });
        }""",
    )
    page.reload()
    expect(batch.get_by_text("this could not be read and is left out: 1 row, 1 answer")).to_be_visible()
    expect(lines(batch)).to_have_count(2)
    expect(line(batch, 2).locator(".input")).to_have_text(["c", "3"])
    with_kept(page, ["runs"], "(runs) => runs.put({ id: 'batch', settings: 7 })")
    page.reload()
    expect(batch.get_by_text("The batch that this browser kept could not be read")).to_be_visible()
    expect(batch.get_by_role("button", name="Ask the same of 20 rows")).to_be_enabled()
    context.close()
