"""What the page says when something is missing, wrong or gone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from pageloom.commands.page_files import DEFAULT_MODEL
from pageloom.commands.page_server import PageServer

LOADING_MS = 180_000

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A profile of its own: nothing is stored yet."""
    context = chromium.new_context(service_workers="block")  # it would answer what a test leaves unanswered
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, built_page: PageServer) -> Page:
    page = context.new_page()
    page.goto(built_page.url)
    return page


def start_load(page: Page) -> None:
    page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()


def stage(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem").filter(has_text=name)


def requests_for_models(context: BrowserContext) -> list[str]:
    """The methods of requests for model files, as they come."""
    methods: list[str] = []

    def count(route: Route) -> None:
        methods.append(route.request.method)
        route.continue_()

    context.route(re.compile(r"\.gguf$"), count)
    return methods


def test_a_file_that_is_no_model_is_refused_in_plain_words(page: Page) -> None:
    page.get_by_label("GGUF file").set_input_files(
        {"name": "notes.gguf", "mimeType": "application/octet-stream", "buffer": b"Dear diary, " * 500}
    )
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("notes.gguf is not a GGUF file")
    expect(page.get_by_role("button", name="Load SmolLM2 135M Instruct")).to_be_enabled()


def test_a_truncated_model_is_refused_and_not_kept(page: Page) -> None:
    with DEFAULT_MODEL.open("rb") as file:
        start = file.read(8 * 2**20)
    page.get_by_label("GGUF file").set_input_files(
        {"name": "half.gguf", "mimeType": "application/octet-stream", "buffer": start}
    )
    expect(page.get_by_role("alert")).to_contain_text("not a model that Pageloom reads", timeout=LOADING_MS)
    expect(page.get_by_role("button", name="copy of half.gguf")).to_have_count(0)


def test_a_model_that_the_server_lacks_is_said_with_its_address(page: Page) -> None:
    page.route("**/model/*", lambda route: route.fulfill(status=404))
    start_load(page)
    expect(page.get_by_role("alert")).to_contain_text("HTTP 404", timeout=LOADING_MS)


def test_a_server_that_is_gone_is_said_with_what_to_do(page: Page) -> None:
    page.route("**/model/*", lambda route: route.abort("connectionrefused"))
    start_load(page)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("start it again with make demo", timeout=LOADING_MS)
    expect(alert).not_to_contain_text("Failed to fetch")


def test_a_browser_without_a_webgpu_adapter_is_told_before_anything_is_fetched(
    without_gpu: Browser, built_page: PageServer
) -> None:
    page = without_gpu.new_page()
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(built_page.url)
    start_load(page)
    expect(page.get_by_role("alert")).to_contain_text("This browser has no WebGPU here")
    assert not [url for url in fetched if "pyodide" in url or "gguf" in url]


def test_a_model_is_fetched_once_and_kept_until_it_is_removed(context: BrowserContext, page: Page) -> None:
    fetched = requests_for_models(context)
    for expected in (["HEAD", "GET"], ["HEAD", "GET", "HEAD"]):
        start_load(page)
        expect(stage(page, "Read its header")).to_be_visible(timeout=LOADING_MS)
        assert fetched == expected
        page.reload()
        expect(page.get_by_role("button", name=f"Load this copy of {DEFAULT_MODEL.name}")).to_be_visible()
    page.get_by_role("button", name=f"Remove {DEFAULT_MODEL.name}").click()
    expect(page.get_by_role("button", name=f"Load this copy of {DEFAULT_MODEL.name}")).to_have_count(0)


def test_a_load_that_is_cancelled_leaves_nothing_and_can_be_started_again(page: Page) -> None:
    page.route("**/pyodide.asm.wasm", lambda route: None)  # the load cannot end before it is cancelled
    start_load(page)
    expect(stage(page, "Start Python")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Load SmolLM2 135M Instruct")).to_be_enabled()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.unroute("**/pyodide.asm.wasm")
    start_load(page)
    expect(stage(page, "Read its header")).to_be_visible(timeout=LOADING_MS)
