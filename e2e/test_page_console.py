"""Python in the tab without the page's worker: the wheel brings its own bridge."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pageloom.commands.page_files import DEFAULT_MODEL
from pageloom.commands.page_server import PageServer, serving
from tests.fetch_gemma3 import gemma3_path

LOADING_MS = 180_000
GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "tokenizer.json"

COMPARE_TOKENIZERS = """
import json
import js
from pageloom.model.gguf import read_gguf
from pageloom.model.gguf_tokenizer import build_tokenizer
from pageloom.tab import home

source = await home.open_source(js.model)
tokenizer = build_tokenizer(await read_gguf(source), home.tokenizer_core)
rows = json.loads(js.golden)
wrong = [
    (special, row["text"])
    for row in rows
    for special, key in ((False, "ids"), (True, "ids_special"))
    if tokenizer.encode(row["text"], allow_special=special) != row[key]
]
f"{len(rows)} rows, wrong: {wrong}"
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def console(chromium: Browser, built_page: PageServer) -> Iterator[Page]:
    page = chromium.new_page()
    page.goto(f"{built_page.url}console.html")
    expect(page.get_by_role("button", name="Run")).to_be_enabled(timeout=LOADING_MS)
    yield page
    page.close()


def run(console: Page, code: str) -> str:
    """What the console prints for `code`."""
    output = console.get_by_role("log", name="Output")
    before = len(output.text_content() or "")
    console.get_by_label("Python").fill(code)
    button = console.get_by_role("button", name="Run")
    button.click()
    expect(button).to_be_enabled(timeout=LOADING_MS)
    return (output.text_content() or "")[before:]


def test_the_consoles_example_answers_its_prompts(console: Page) -> None:
    example = console.get_by_label("Python").evaluate("(input) => input.defaultValue")
    printed = run(console, example)
    assert "ravity" in printed
    assert "Traceback" not in printed


def test_a_model_that_is_not_there_is_a_typed_error(console: Page) -> None:
    printed = run(console, 'import pageloom\nawait pageloom.load("no-such-model.gguf")')
    assert "BadModelFile" in printed
    assert "HTTP 404" in printed


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_tabs_tokenizer_gives_the_golden_ids(console: Page, model: str) -> None:
    path = {"smollm2": DEFAULT_MODEL, "gemma3": gemma3_path()}[model]
    if not path.is_file():
        pytest.skip(f"no {path.name}; tests/fetch_gemma3.py brings it")
    rows = json.loads(GOLDEN.read_text())[model]["rows"]
    with serving(
        PageServer({"golden-model": path}, allowed_origin=console.url.removesuffix("/console.html"))
    ) as server:
        told = {"golden": json.dumps(rows), "model": f"{server.url}golden-model/{path.name}"}
        console.evaluate("(told) => Object.assign(globalThis, told)", told)
        assert f"{len(rows)} rows, wrong: []" in run(console, COMPARE_TOKENIZERS)
