"""The batch view: rows in, in whatever format, and the columns that the template asks for."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from e2e.batch_kit import fill, line, lines

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

pytestmark = pytest.mark.timeout(600)


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
