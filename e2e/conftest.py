"""A headless Chromium with WebGPU, and pages in it that run the project's Python in Pyodide."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from e2e.batch_kit import ANSWERING_MS, LOADING_MS, choose
from e2e.visit import Visit, begin_visit
from pageloom.commands.browser import browser_flags, find_browser
from pageloom.commands.page_files import DEFAULT_MODEL, find_page
from pageloom.commands.page_server import PageServer, serving
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).resolve().parents[1]

START_PYODIDE = """
async () => {
  const { loadPyodide } = await import('/pyodide/pyodide.mjs');
  globalThis.pyodide = await loadPyodide({ indexURL: new URL('/pyodide/', location.href).href });
  const archive = await (await fetch('/python/python.zip')).arrayBuffer();
  pyodide.unpackArchive(archive, 'zip');
}
"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=browser_flags("software"))
        yield browser
        browser.close()


@pytest.fixture
def without_gpu(chromium: Browser) -> Iterator[Browser]:
    """A browser that offers a page no WebGPU adapter."""
    browser = chromium.browser_type.launch(
        executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"]
    )
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """The sources as they are: `/web` the JavaScript, `/pyodide`, `/python/python.zip` the Python to unpack there."""
    python = tmp_path_factory.mktemp("python")
    with zipfile.ZipFile(python / "python.zip", "w") as archive:
        for name, folder in {
            "pageloom/wgsl": ROOT / "wgsl",
            "pageloom": ROOT / "py" / "pageloom",
            "jinja2": Path(jinja2.__file__).parent,
            "markupsafe": Path(markupsafe.__file__).parent,
            "": ROOT / "e2e" / "in_browser",
        }.items():
            for path in sorted(folder.rglob("*")):
                if path.suffix in {".py", ".j2"}:
                    archive.write(path, Path(name, path.relative_to(folder)))
    folders = {
        "": ROOT / "e2e" / "pages",
        "web": ROOT / "web" / "src",
        "pyodide": ROOT / "node_modules" / "pyodide",
        "python": python,
    }
    with serving(PageServer(folders)) as server:
        yield server


@pytest.fixture(scope="session")
def built_page() -> Iterator[PageServer]:
    """The page as it is built, with the built-in model."""
    with serving(PageServer({"": find_page(), "model": DEFAULT_MODEL})) as server:
        yield server


@pytest.fixture(scope="session")
def tiny_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """The page as it is built, with a tiny model of random weights as the built-in one: quick, and no answers."""
    model = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with serving(PageServer({"": find_page(), "model": model})) as server:
        yield server


@pytest.fixture(scope="session")
def visit(chromium: Browser, tiny_page: PageServer) -> Iterator[Visit]:
    """For tests that leave the page as useful as they found it."""
    page = chromium.new_page(service_workers="block")
    yield begin_visit(page, tiny_page.url)
    page.close()


@pytest.fixture(scope="session")
def batch_visit(chromium: Browser, tiny_page: PageServer) -> Iterator[tuple[Page, list[str]]]:
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
def batch(batch_visit: tuple[Page, list[str]]) -> Locator:
    """The batch view, wide, empty and with a model."""
    page, _ = batch_visit
    page.set_viewport_size({"width": 1280, "height": 900})
    if page.locator("#status").get_by_text("none loaded").is_visible():
        page.get_by_role("tab", name="Models").click()
        page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=LOADING_MS)
    view = page.get_by_role("tabpanel", name="Batch")
    stop = view.get_by_role("button", name="Stop all")
    if stop.is_enabled():
        stop.click()
    expect(stop).to_be_disabled()
    if view.get_by_role("button", name="Clear").is_enabled():
        choose(view, "Clear", "Clear everything")
    return view


@pytest.fixture(scope="module")
def python_page(chromium: Browser, page_server: PageServer) -> Iterator[Page]:
    """A page with `globalThis.pyodide`, in which `import pageloom` works."""
    page = chromium.new_page()
    page.goto(f"{page_server.url}blank.html")
    page.evaluate(START_PYODIDE)
    yield page
    page.close()


@pytest.fixture
def in_browser(python_page: Page) -> Callable[..., Any]:
    """`in_browser("module.function", *arguments)` awaits a function of `e2e/in_browser/` in the page's Python.

    Arguments and result are JSON.
    """

    def run(name: str, *arguments: Any) -> Any:
        module, function = name.split(".")
        code = f"import json, {module}\njson.dumps(await {module}.{function}(*json.loads({json.dumps(arguments)!r})))"
        return json.loads(python_page.evaluate("(code) => pyodide.runPythonAsync(code)", code))

    return run
