"""The batch view: one prompt for all rows, answers out. A tiny model of random weights answers: what it says does not
matter here."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.batch_kit import ANSWERING_MS, downloaded, fill, line, lines, run, state

pytestmark = pytest.mark.timeout(600)


def test_twenty_rows_are_answered_three_actions_after_the_page_opens(batch_visit: tuple[Page, list[str]]) -> None:
    _, actions = batch_visit
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
