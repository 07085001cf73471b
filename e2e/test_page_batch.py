"""The batch view: rows in, one prompt for all, answers out. A tiny model of random weights answers: what it says does
not matter here."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pageloom.commands.page_server import PageServer

LOADING_MS = 180_000
ANSWERING_MS = 120_000
RUN = re.compile(r"^Run \d+ rows?( again)?$")

PASTE = """
(text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData('text/plain', text);
  document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
}
"""
DROP = """
([name, text]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([text], name));
  document.getElementById('view-batch').dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true }));
}
"""
# A read comes after the writes that were begun before it.
READ_ROWS = """
async () => {
  const database = await new Promise((resolve, reject) => {
    const request = indexedDB.open('pageloom');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const reading = database.transaction('rows').objectStore('rows').getAll();
  await new Promise((resolve) => { reading.onsuccess = resolve; });
  database.close();
  return reading.result;
}
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def first_visit(chromium: Browser, tiny_page: PageServer) -> Iterator[tuple[Page, list[str]]]:
    """A page on which a first batch of 20 rows has been answered, and what was done to that end after it opened."""
    page = chromium.new_page()
    page.goto(tiny_page.url)
    actions: list[str] = []

    def do(what: str, action: Callable[[], object]) -> None:
        action()
        actions.append(what)

    do("load the built-in model", page.get_by_role("button", name="Load SmolLM2 135M Instruct").click)
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=LOADING_MS)
    do("take the first example", page.get_by_role("button", name="Ask the same of 20 rows").click)
    do("run it", page.get_by_role("button", name="Run 20 rows").click)
    expect(page.get_by_text("20 of 20 rows done")).to_be_visible(timeout=ANSWERING_MS)
    yield page, actions
    page.close()


@pytest.fixture
def batch(first_visit: tuple[Page, list[str]]) -> Locator:
    """The batch view, wide, empty and with a model."""
    page, _ = first_visit
    page.set_viewport_size({"width": 1280, "height": 900})
    view = page.get_by_role("tabpanel", name="Batch")
    stop = view.get_by_role("button", name="Stop all")
    if stop.is_enabled():
        stop.click()
    expect(stop).to_be_disabled()
    if view.get_by_role("button", name="Clear").is_enabled():
        choose(view, "Clear", "Clear everything")
    return view


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


def test_twenty_rows_are_answered_three_actions_after_the_page_opens(first_visit: tuple[Page, list[str]]) -> None:
    _, actions = first_visit
    assert len(actions) == 3, actions


def test_all_rows_are_answered_and_exported_as_they_are_shown(batch: Locator) -> None:
    rows = ["word,colour", *(f'"w{n}, w",blue' for n in range(8))]
    fill(batch, "Say {word} in {colour}", "\n".join(rows), 3)
    run(batch)
    expect(batch.get_by_text("8 of 8 rows done")).to_be_visible(timeout=ANSWERING_MS)
    shown = [line(batch, number).locator(".output").text_content() for number in range(1, 9)]
    assert all(shown)
    exported = list(csv.DictReader(io.StringIO(downloaded(batch, "CSV"), newline="")))
    assert [row["word"] for row in exported] == [f"w{n}, w" for n in range(8)]
    assert [row["output"].removeprefix("'") for row in exported] == shown
    assert {row["completion_tokens"] for row in exported} <= {"1", "2", "3"}
    assert all(float(row["seconds"]) > 0 for row in exported)
    as_json = json.loads(downloaded(batch, "JSON"))
    assert [row["prompt"] for row in as_json] == [f"Say w{n}, w in blue" for n in range(8)]
    assert [row["output"] for row in as_json] == shown
    assert [json.loads(row) for row in downloaded(batch, "JSON Lines").splitlines()] == as_json


def test_one_row_stops_alone_and_then_all(batch: Locator) -> None:
    fill(batch, "Count from {start} to a thousand", "1\n2\n3", 400)
    run(batch)
    states = batch.locator(".grid-row .state")
    expect(states).to_have_text(["running"] * 3, timeout=ANSWERING_MS)
    batch.get_by_role("button", name="Stop row 2").click()
    expect(states).to_have_text(["running", "stopped", "running"])
    batch.get_by_role("button", name="Stop all").click()
    expect(states).to_have_text(["stopped"] * 3)
    expect(batch.get_by_text("0 of 3 rows done, 3 stopped")).to_be_visible()


def test_a_row_that_failed_says_why_and_is_edited_and_run_again_alone(batch: Locator) -> None:
    fill(batch, "{text}", f"Hi\n{'word ' * 600}", 2)
    run(batch)
    expect(batch.get_by_text("1 of 2 rows done, 1 failed")).to_be_visible(timeout=ANSWERING_MS)
    first = line(batch, 1).locator(".output").text_content()
    line(batch, 2).click()
    detail = batch.get_by_role("region", name="Selected row")
    expect(detail.locator(".row-error")).to_have_text("Too long")
    expect(detail).to_contain_text(re.compile(r"\d{3}"))
    detail.get_by_label("text").fill("word")
    expect(detail.locator("mark")).to_have_text("word")
    detail.get_by_role("button", name="Run this row again").click()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    assert line(batch, 1).locator(".output").text_content() == first
    expect(batch.get_by_label("Rows", exact=True)).to_have_value("Hi\nword")


def test_a_placeholder_without_a_column_is_told_and_the_columns_are_offered(batch: Locator) -> None:
    fill(batch, "Say  in {tone}", "word\tcolour\na\tred\nb\tblue", 1)
    expect(batch.get_by_text("{tone} is no column of these rows")).to_be_visible()
    expect(batch.get_by_role("button", name=re.compile("^Run 2 rows"))).to_be_disabled()
    template = batch.get_by_label("Template")
    template.press("Control+Home")
    for _ in range(4):
        template.press("ArrowRight")
    batch.get_by_role("button", name="Insert {word}").press("Enter")
    expect(template).to_have_value("Say {word} in {tone}")
    expect(template).to_be_focused()
    template.press_sequentially(",")
    expect(template).to_have_value("Say {word}, in {tone}")
    template.fill("Say {word} in {colour}")
    line(batch, 2).click()
    expect(batch.locator(".prompt")).to_have_text("Say b in blue")
    expect(batch.get_by_role("button", name="Run 2 rows")).to_be_enabled()


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.tsv", "name\tyear\nAda\t1815", "TSV (detected)"),
        ("b.jsonl", '{"name": "Ada", "year": 1815}\n', "JSON Lines (detected)"),
        ("c.json", '[{"name": "Ada", "year": 1815}]', "JSON array (detected)"),
        ("d.csv", "name;year\nAda;1815\n", "CSV (detected)"),
    ],
)
def test_a_dropped_file_is_read_in_its_format(batch: Locator, name: str, text: str, found: str) -> None:
    batch.page.evaluate(DROP, [name, text])
    expect(batch.get_by_label("Read as").locator("option:checked")).to_have_text(found)
    expect(line(batch, 1).locator(".input")).to_have_text(["Ada", "1815"])


def test_rows_that_are_pasted_anywhere_are_taken_and_their_format_can_be_corrected(batch: Locator) -> None:
    batch.page.evaluate(PASTE, "red, dark\nblue, light\n")
    expect(lines(batch)).to_have_count(2)
    expect(batch.get_by_label("Read as").locator("option:checked")).to_have_text("Lines (detected)")
    batch.get_by_label("Read as").select_option("CSV")
    expect(line(batch, 1).locator(".input")).to_have_text(["red", " dark"])
    batch.get_by_label("First line names the columns").check()
    expect(line(batch, 1).locator(".input")).to_have_text(["blue", " light"])
    batch.get_by_label("Read as").select_option("JSON array")
    expect(batch.get_by_text("This is not JSON")).to_be_visible()


def test_rows_are_sorted_and_filtered_by_state_and_text(batch: Locator) -> None:
    fill(batch, "{word}", "b\na\nc", 1)
    batch.get_by_role("button", name="Run row 2").click()
    expect(state(batch, 2)).to_have_text(re.compile("done|cut off"), timeout=ANSWERING_MS)
    batch.get_by_role("button", name="To run 2").click()
    expect(lines(batch)).to_have_count(2)
    batch.get_by_role("button", name="All 3").click()
    batch.get_by_role("button", name="word", exact=True).click()
    expect(batch.get_by_role("columnheader", name="word")).to_have_attribute("aria-sort", "ascending")
    for index, number in enumerate([2, 1, 3]):
        expect(line(batch, number)).to_have_attribute("aria-rowindex", str(index + 2))
    batch.get_by_label("Find in rows").fill("c")
    expect(line(batch, 3)).to_be_visible()
    expect(lines(batch)).to_have_count(1)
    batch.get_by_label("Find in rows").fill("")
    for _ in range(2):
        batch.get_by_role("button", name="word", exact=True).click()


def test_answers_to_another_question_are_outdated_until_they_are_asked_again(batch: Locator) -> None:
    fill(batch, "{word}", "a\nb", 1)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    batch.get_by_label("Template").fill("{word}?")
    expect(batch.locator(".grid-row .state")).to_have_text(["outdated"] * 2)
    expect(batch.get_by_role("button", name="Run 2 rows", exact=True)).to_be_enabled()


def test_answers_that_were_cleared_come_back_by_undo(batch: Locator) -> None:
    fill(batch, "{word}", "a\nb", 2)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    choose(batch, "Clear", "Clear everything")
    expect(batch.get_by_role("heading", name="Many rows, one prompt")).to_be_visible()
    batch.get_by_role("button", name="Undo").click()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible()
    expect(batch.get_by_label("Template")).to_have_value("{word}")


def test_the_keyboard_alone_chooses_edits_and_runs_a_row(batch: Locator) -> None:
    fill(batch, "{word}", "a\nb\nc", 1)
    table = batch.get_by_role("grid", name="Rows and answers")
    table.focus()
    for key in ("End", "ArrowUp", "Enter"):
        table.press(key)
    editor = batch.get_by_role("region", name="Selected row").get_by_label("word")
    expect(editor).to_be_focused()
    editor.press_sequentially("!")
    editor.press("Control+Enter")
    expect(state(batch, 2)).to_have_text(re.compile("done|cut off"), timeout=ANSWERING_MS)
    expect(line(batch, 2).locator(".input")).to_have_text("b!")
    editor.press("Escape")
    expect(table).to_be_focused()
    expect(table).to_have_attribute("aria-activedescendant", "batch-row-1")


def test_labels_are_chosen_with_a_probability_each_and_exported(batch: Locator) -> None:
    fill(batch, "Is {word} warm?", "sun\nice", 1)
    batch.get_by_role("radio", name="A label").check()
    expect(batch.get_by_role("button", name="Run 2 rows")).to_be_disabled()
    batch.get_by_label("Labels, one a line").fill("warm\ncold\nneither")
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    exported = list(csv.DictReader(io.StringIO(downloaded(batch, "CSV"), newline="")))
    for number, row in enumerate(exported, start=1):
        shares = {label: float(row[f"p({label})"]) for label in ("warm", "cold", "neither")}
        assert sum(shares.values()) == pytest.approx(1)
        assert row["output"] == max(shares, key=lambda label: shares[label])
        expect(line(batch, number).locator(".output")).to_have_text(row["output"])
        expect(line(batch, number).locator(".bars i")).to_have_count(3)
        expect(line(batch, number).locator("div.bars")).to_contain_text(f"{100 * max(shares.values()):.0f} %")
    expect(batch.get_by_role("region", name="Selected row").locator(".bar-list dt")).to_have_count(3)
    batch.get_by_role("radio", name="Text").check()


def test_fields_that_are_added_become_columns_of_json_answers(batch: Locator) -> None:
    fill(batch, "What of {word}?", "sun\nice", 60)
    batch.get_by_role("radio", name="JSON").check()
    expect(batch.get_by_role("button", name="Run 2 rows")).to_be_disabled()
    batch.get_by_role("button", name="Add a field").click()
    batch.get_by_label("Name of field 1").fill("mood")
    batch.get_by_label("Name of field 1").press("Enter")
    batch.get_by_label("Type of mood").select_option("one of")
    batch.get_by_label("What mood may be").fill("good, bad")
    batch.get_by_label("What mood may be").press("Enter")
    batch.get_by_role("button", name="Add a field").click()
    batch.get_by_label("Type of field_2").select_option("yes or no")
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    for number, row in enumerate(json.loads(downloaded(batch, "JSON")), start=1):
        assert row["parsed"] == json.loads(row["output"])
        assert row["parsed"]["mood"] in {"good", "bad"}
        assert row["parsed"]["field_2"] in {True, False}
        shown = [row["parsed"]["mood"], json.dumps(row["parsed"]["field_2"])]
        expect(line(batch, number).locator(".field")).to_have_text(shown)
    batch.get_by_role("radio", name="Text").check()


def test_hundreds_of_rows_are_in_the_table_and_few_of_them_in_the_document(batch: Locator) -> None:
    fill(batch, "{word}", "\n".join(f"word {n}" for n in range(500)), 1)
    table = batch.get_by_role("grid", name="Rows and answers")
    expect(table).to_have_attribute("aria-rowcount", "501")
    assert lines(batch).count() < 40
    table.press("End")
    expect(line(batch, 500)).to_be_visible()
    assert lines(batch).count() < 40


def test_a_row_shows_state_and_button_in_a_narrow_window(batch: Locator) -> None:
    batch.page.set_viewport_size({"width": 360, "height": 800})
    fill(batch, "Count from {start}", "1\n2\n3", 1)
    expect(state(batch, 1)).to_be_visible()
    assert batch.page.evaluate("document.documentElement.scrollWidth") <= 360
    for cell in (state(batch, 1), batch.get_by_role("button", name="Run row 1")):
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360


def test_a_run_survives_a_reload_and_goes_on_with_one_click(batch: Locator) -> None:
    fill(batch, "Count from {start}", "1\n2", 300)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    answers = [line(batch, number).locator(".output").text_content() for number in (1, 2)]
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


def test_answers_that_were_cleared_and_came_back_are_there_after_a_reload(batch: Locator) -> None:
    fill(batch, "{word}", "a\nb", 2)
    run(batch)
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible(timeout=ANSWERING_MS)
    choose(batch, "Clear", "Clear the answers")
    expect(batch.get_by_text("2 of 2 rows done")).to_have_count(0)
    batch.get_by_role("button", name="Undo").click()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible()
    kept = batch.page.evaluate(READ_ROWS)
    assert [row["outcome"] is not None for row in kept] == [True, True]
    batch.page.reload()
    expect(batch.get_by_text("2 of 2 rows done")).to_be_visible()


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
