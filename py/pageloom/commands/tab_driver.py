"""Drives the page's JavaScript API in a Chromium tab, through Playwright."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pageloom.commands.browser import Gpu, browser_flags, has_graphics_device
from pageloom.errors import DeviceError, NotSupported, PageloomError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# An error crosses from the page as plain data: an exception would arrive as a text only.
_CATCHING = """
async (argument) => {
  try {
    return { result: await (SCRIPT)(argument) };
  } catch (error) {
    return { error: { message: error.message ?? String(error), code: error.code ?? null, param: error.param ?? null } };
  }
}
"""
# Tokens are told now and then, since a call for each would cost a fast adapter more than the token.
_RUN_BATCH = """
async ({ api, model, options, rows }) => {
  const { Pageloom } = await import(api);
  const engine = await Pageloom.load({ model, store: false, onProgress: pageloomProgress, ...options });
  let tokens = 0;
  let toldAt = 0;
  const onText = () => {
    tokens += 1;
    if (performance.now() - toldAt < 200) return;
    toldAt = performance.now();
    pageloomTokens(tokens);
  };
  const startedAt = performance.now();
  const results = await engine.batch(rows, { onRow: pageloomRow, onText });
  const seconds = (performance.now() - startedAt) / 1000;
  return { results, seconds, adapter: engine.model.adapter, stats: await engine.stats() };
}
"""
_FIND_ADAPTER = """
async () => {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return null;
  const { vendor, architecture, description } = adapter.info;
  const limits = {};
  for (const name in adapter.limits) limits[name] = adapter.limits[name];
  const software = adapter.info.isFallbackAdapter || architecture === 'swiftshader';
  return { vendor, architecture, description, software, features: [...adapter.features].sort(), limits };
}
"""
_ERRORS: list[type[PageloomError]] = [PageloomError, *PageloomError.__subclasses__(), *DeviceError.__subclasses__()]
_ERRORS_BY_CODE = {error.code: error for error in _ERRORS}


@dataclass(frozen=True, slots=True)
class TabRun:
    """What a batch in the tab came to. `results` are the rows in the order of the jobs, `seconds` without loading."""

    results: Sequence[Mapping[str, Any]]
    seconds: float
    adapter: Mapping[str, Any]
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TabListener:
    """What is told while a batch runs: a load's progress, each row as it ends, the tokens made so far."""

    on_progress: Callable[[Mapping[str, Any]], None]
    on_row: Callable[[Mapping[str, Any]], None]
    on_tokens: Callable[[int], None]


def run_batch(
    page: Page,
    page_url: str,
    model_url: str,
    rows: Sequence[Mapping[str, object]],
    options: Mapping[str, object],
    listener: TabListener,
) -> TabRun:
    """Load a model in the tab and run all `rows` (jobs as JSON objects) at once.

    Raises the error that the page reports, by its code, and `DeviceError` where the tab itself ends.
    """
    page.expose_function("pageloomProgress", listener.on_progress)
    page.expose_function("pageloomRow", listener.on_row)
    page.expose_function("pageloomTokens", listener.on_tokens)
    arguments = {"api": urljoin(page_url, "pageloom.js"), "model": model_url, "options": options, "rows": rows}
    return TabRun(**evaluate(page, _RUN_BATCH, arguments))


def evaluate(page: Page, script: str, argument: object) -> Any:
    """What an async function of the page's, written in JavaScript, returns.

    Raises the error that it throws, by its code, and `DeviceError` where the tab itself ends.
    """
    from playwright.sync_api import Error as BrowserError  # noqa: PLC0415 - optional

    try:
        outcome = page.evaluate(_CATCHING.replace("SCRIPT", script), argument)
    except BrowserError as error:
        raise DeviceError(f"the browser's tab ended: {error.message}") from error
    if "error" in outcome:
        reported = outcome["error"]
        raise _ERRORS_BY_CODE.get(reported["code"], PageloomError)(reported["message"], param=reported["param"])
    return outcome["result"]


def find_adapter(page: Page) -> Mapping[str, Any] | None:
    """The adapter that the tab's WebGPU gives: vendor, architecture, description, software, features, limits."""
    adapter: Mapping[str, Any] | None = page.evaluate(_FIND_ADAPTER)
    return adapter


@contextmanager
def open_tab(page_url: str, browser: str, gpu: Gpu, *, headed: bool = False) -> Iterator[Page]:
    """An empty document of the page's origin, with WebGPU, in a browser of its own.

    "auto" takes the software adapter where a graphics device is there but gives no adapter, and says so. Raises
    `NotSupported` where Playwright is not installed, the browser does not start or there is no adapter.
    """
    try:
        from playwright.sync_api import Error as BrowserError  # noqa: PLC0415 - optional
        from playwright.sync_api import sync_playwright  # noqa: PLC0415
    except ImportError as error:
        raise NotSupported("the tab needs Playwright: pip install 'pageloom[tab]'") from error

    with sync_playwright() as playwright:

        def launch(kind: Gpu) -> Browser:
            try:
                return playwright.chromium.launch(
                    executable_path=browser,
                    headless=not headed,
                    args=browser_flags(kind),
                )
            except BrowserError as error:
                raise NotSupported(f"{browser} does not start: {error.message}", param="browser") from error

        running = launch(gpu)
        try:
            page = _empty_document(running, page_url)
            if find_adapter(page) is None and gpu == "auto" and has_graphics_device():
                print("The graphics device gives no WebGPU adapter: using the software adapter.", file=sys.stderr)
                running.close()
                running = launch("software")
                page = _empty_document(running, page_url)
            if find_adapter(page) is None:
                raise NotSupported(f"{browser} offers no WebGPU adapter (--gpu {gpu})", param="gpu")
            yield page
        finally:
            running.close()


def _empty_document(browser: Browser, page_url: str) -> Page:
    """The page's origin without the page: it would load a model of its own."""
    page = browser.new_page()
    empty_url = urljoin(page_url, "command-line.html")
    page.route(empty_url, lambda route: route.fulfill(content_type="text/html", body="<!doctype html><title>Pageloom"))
    page.goto(empty_url)
    return page
