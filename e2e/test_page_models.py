"""Models before and while they are loaded: what fits, interrupted downloads, room, and what the browser keeps."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from pageloom.commands.page_server import PageServer
from tests.tiny_model import write_tiny_model

LOADING_MS = 120_000
MEBIBYTE = 2**20

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a file of 12 MiB: what follows the last tensor is nobody's."""
    path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    with path.open("ab") as file:
        file.truncate(12 * MEBIBYTE)
    return path


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A profile of its own: nothing is stored yet."""
    context = chromium.new_context(service_workers="block")
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, tiny_page: PageServer) -> Page:
    page = context.new_page()
    page.goto(tiny_page.url)
    return page


class ModelServer(ThreadingHTTPServer):
    """Serves one file to pages of other origins, in whole and in parts, and breaks its first whole answer off."""

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data = data
        self.downloads: list[str] = []
        """The Range header of each answer that goes on to the end of the file."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/remote.gguf"


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(b"", len(self.server.data))

    def do_GET(self) -> None:
        data, asked = self.server.data, self.headers.get("Range", "")
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        if match:
            first, last = int(match[1]), int(match[2] or len(data) - 1)
            if not match[2]:
                self.server.downloads.append(asked)
            self._answer(data[first : last + 1], last + 1 - first, f"bytes {first}-{last}/{len(data)}")
            return
        self.server.downloads.append(asked)
        self._answer(data[: 9 * MEBIBYTE], len(data))
        self.close_connection = True

    def _answer(self, body: bytes, length: int, part: str | None = None) -> None:
        self.send_response(206 if part else 200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Expose-Headers", "Content-Range, ETag")
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(length))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def server(model: Path) -> Iterator[ModelServer]:
    server = ModelServer(model.read_bytes())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def look(page: Page, name: str) -> Locator:
    panel = page.get_by_role("region", name=f"About {name}")
    expect(panel).to_be_visible(timeout=LOADING_MS)
    return panel


def ready(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text("Tokens/s", timeout=LOADING_MS)


def test_a_picked_file_tells_what_it_takes_and_loads_with_the_memory_that_was_chosen(page: Page, model: Path) -> None:
    page.get_by_label("GGUF file").set_input_files(model)
    panel = look(page, "tiny.gguf")
    expect(panel).to_contain_text("Fits the limits of this GPU")
    expect(panel).to_contain_text("12.6 MB")
    memory = panel.get_by_label("Memory for the KV cache")
    expect(memory).to_have_value("256")
    # A page of 16 tokens takes 2 sides, 2 layers, 2 heads, 16 channels and 2 bytes: 4 KiB.
    memory.fill("1")
    expect(panel).to_contain_text("room for 4,096 tokens over all prompts, such as 8 prompts of 512 tokens")
    panel.get_by_label("Longest context").fill("64")
    expect(panel).to_contain_text("such as 64 prompts of 64 tokens")
    expect(panel).to_contain_text("Fits with a context of 64 tokens")
    panel.get_by_label("The cache stores").select_option("8-bit floats: half the memory, rougher")
    expect(panel).to_contain_text("such as 128 prompts of 64 tokens")
    panel.get_by_role("button", name="Load").click()
    ready(page)
    expect(page.locator("#status")).to_contain_text("of 512")
    page.get_by_role("tab", name="Models").click()
    kept = page.get_by_role("listitem").filter(has_text="tiny.gguf")
    expect(kept).to_contain_text("12.6 MB")
    kept.get_by_role("button", name="Remove tiny.gguf").click()
    expect(page.get_by_text("No model yet.")).to_be_visible()


def test_a_model_that_cannot_run_is_told_why_before_it_is_loaded(page: Page, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    page.get_by_label("GGUF file").set_input_files(tmp_path / "other.gguf")
    panel = look(page, "other.gguf")
    expect(panel).to_contain_text("Does not fit")
    expect(panel).to_contain_text("the architecture 'mamba' is not supported")
    expect(panel.get_by_role("button", name="Load")).to_be_disabled()


def test_an_interrupted_download_goes_on_after_a_reload(page: Page, server: ModelServer) -> None:
    page.get_by_label("Address of a model").fill(server.url)
    page.get_by_role("button", name="Look", exact=True).click()
    look(page, "remote.gguf").get_by_role("button", name="Load").click()
    expect(page.get_by_role("alert")).to_contain_text("it goes on from where it stopped", timeout=LOADING_MS)
    page.reload()
    kept = page.get_by_role("listitem").filter(has_text="remote.gguf")
    # What had come but was not read yet when the connection broke may be lost.
    expect(kept).to_contain_text(re.compile(r"[89]\.4 MB of 12\.6 MB downloaded"))
    kept.get_by_role("button", name="Continue the download of remote.gguf").click()
    panel = look(page, "remote.gguf")
    expect(panel).to_contain_text(re.compile(r"12\.6 MB, [89]\.4 MB of it here"))
    panel.get_by_role("button", name="Load").click()
    ready(page)
    page.get_by_role("tab", name="Models").click()
    expect(kept.get_by_role("button", name="Load this copy of remote.gguf")).to_be_visible()
    assert server.downloads == ["", f"bytes={8 * MEBIBYTE}-"]


def test_a_browser_without_room_says_so_before_the_download(
    context: BrowserContext, page: Page, tiny_page: PageServer, model: Path
) -> None:
    quota = {"origin": tiny_page.url.rstrip("/"), "quotaSize": 4 * MEBIBYTE}
    context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", quota)
    page.get_by_label("GGUF file").set_input_files(model)
    panel = look(page, "tiny.gguf")
    expect(panel).to_contain_text("no room for the 12.6 MB that are to come of tiny.gguf: it is not kept")
    panel.get_by_role("button", name="Load").click()
    ready(page)
    page.get_by_role("tab", name="Models").click()
    expect(page.get_by_text("tiny.gguf is not kept in this browser")).to_be_visible()
    expect(page.get_by_text("No model yet.")).to_be_visible()
