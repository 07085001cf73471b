"""The page on a local worker in place of its tab: the same views, and the operators there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from pageloom.commands.page_server import PageServer
from tests.tiny_model import write_tiny_model
from tests.worker.running_worker import MODEL, QUICK, TOKEN, RunningWorker, serving, why_no_cpu

ANSWERING_MS = 60_000
MODEL_FILE = re.compile(r"\.gguf$")
HEALTH = re.compile("/healthz$")
CALLS = re.compile("/v1/session/.")
AS_DESKTOP = """
globalThis.pageloomDesktop = {
  stopWorker: async () => {},
  onOpened: (callback) => { globalThis.openFile = (name) => callback({ url: `opened/1/${name}`, name }); },
};
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def worker(tiny_page: PageServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    """A worker that serves the page at `tiny_page`, for who knows its token."""
    folder = tmp_path_factory.mktemp("worker")
    model = write_tiny_model(folder / f"{MODEL}.gguf")
    (folder / "token").write_text(TOKEN)
    origin = tiny_page.url.rstrip("/")
    with serving(
        model, folder, "--allow-origin", origin, "--token-file", str(folder / "token"), backend=QUICK
    ) as running:
        yield running


@pytest.fixture(scope="module")
def page(chromium: Browser, tiny_page: PageServer, worker: RunningWorker) -> Iterator[Page]:
    """The page, connected."""
    page = chromium.new_page(service_workers="block")
    page.goto(tiny_page.url)
    connect(page, worker.url, TOKEN)
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=ANSWERING_MS)
    yield page
    page.close()


def connect(page: Page, address: str, token: str = "") -> None:
    page.get_by_role("tab", name="Models").click()
    page.get_by_label("on a local worker").check()
    page.get_by_label("Address", exact=True).fill(address)
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Connect").click()


def hold(page: Page, address: re.Pattern[str]) -> list[Route]:
    """The requests of `address`, which get no answer until the test lets them go on."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    page.route(address, keep)
    return held


def export(page: Page, view: Locator) -> Any:
    """What the operators view gives to others."""
    with page.expect_download() as download:
        view.get_by_role("button", name="Export JSON").click()
    return json.loads(Path(download.value.path()).read_text())


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def test_a_batch_runs_there_and_the_views_show_what_the_worker_does(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text(MODEL)
    assert not [worker for worker in page.workers if "worker" in worker.url]
    batch = show(page, "Batch")
    batch.get_by_role("textbox", name="Rows").fill("\n".join(["n,word", *(f"{n},w{n}" for n in range(40))]))
    batch.get_by_label("Template", exact=True).fill("Say {word}")
    batch.get_by_label("Most tokens").fill("4")
    batch.get_by_role("button", name=re.compile("^Run 40 rows")).click()
    expect(batch.get_by_text("40 of 40 rows done")).to_be_visible(timeout=ANSWERING_MS)
    expect(page.locator("#status div").filter(has_text="Pages").locator("dd")).to_contain_text("of 256")
    inside = show(page, "See inside")
    expect(inside.get_by_role("img").first).to_be_visible()


def test_its_answers_are_those_of_the_same_engine_anywhere(page: Page, worker: RunningWorker) -> None:
    answer, chunks, counted = page.evaluate(
        """async ([address, token]) => {
          const { LocalServer, Pageloom } = await import('./pageloom.js');
          const engine = await Pageloom.connect(new LocalServer(address, token));
          const body = { messages: [{ role: 'user', content: 'hello world' }], max_tokens: 6 };
          const answer = await engine.chat.completions.create(body);
          const chunks = [];
          for await (const { choices } of await engine.chat.completions.create({ ...body, stream: true })) {
            chunks.push(choices[0].delta.content ?? '');
          }
          const counted = await engine.countTokens({ prompt: 'hello world' });
          engine.close();
          return [answer, chunks, counted];
        }""",
        [worker.url, TOKEN],
    )
    with worker.openai(api_key=TOKEN) as client:
        same = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello world"}], max_tokens=6, temperature=0
        )
    assert answer["choices"][0]["message"]["content"] == same.choices[0].message.content == "".join(chunks)
    assert same.usage is not None
    assert counted == answer["usage"]["prompt_tokens"] == same.usage.prompt_tokens


def test_the_operators_are_checked_on_the_worker_and_the_result_can_be_compared(page: Page, tmp_path: Path) -> None:
    view = show(page, "Operators")
    view.get_by_label("Run on").select_option(label="the worker: CPU")
    view.get_by_label("Cases with").fill("scatter linear")
    view.get_by_role("button", name="Run the main cases").click()
    expect(view.get_by_text(re.compile(r"^([1-9]\d*) of \1 cases passed"))).to_be_visible(timeout=ANSWERING_MS)
    expect(view.get_by_text(re.compile("^On .*"))).to_be_visible()
    exported = export(page, view)
    assert (exported["backend"], exported["counts"]["failed"]) == ("cpu", 0)
    exported["cases"][0]["outcome"] = "failed"
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps(exported))
    with page.expect_file_chooser() as chooser:
        view.get_by_role("button", name="Compare with a file").click()
    chooser.value.set_files(other)
    expect(view.get_by_text("1 case came out otherwise in theirs.json")).to_be_visible()
    expect(view.get_by_role("listitem").filter(has_text=exported["cases"][0]["name"])).to_contain_text("failed")
    view.get_by_label("Run on").select_option(label="this tab")
    view.get_by_label("Cases with").fill("")
    expect(view.get_by_role("button", name=re.compile("^Run [1-9]"))).to_be_enabled()


@pytest.mark.skipif(bool(why_no_cpu()), reason=why_no_cpu())
def test_the_operators_are_measured_on_the_worker_until_stopped_and_the_result_can_be_compared(
    page: Page, tmp_path: Path
) -> None:
    view = show(page, "Operators")
    view.get_by_role("button", name="Benchmarks").click()
    view.get_by_label("Run on").select_option(label="the worker: CPU")
    view.get_by_label("Shapes with").fill("decode t=1 int8")
    view.get_by_role("button", name="Measure").click()
    expect(view.get_by_text("Measured.")).to_be_visible(timeout=ANSWERING_MS)
    rows = view.get_by_role("region", name="Measurements").locator("tbody tr")
    expect(rows.filter(has_text="decode T=1 16/8 int8, call, threads: 1")).to_have_count(2)
    exported = export(page, view)
    assert exported["backend"] == "cpu"
    assert [result["shape"]["total"] for result in exported["results"]] == [1] * len(exported["results"])
    expect(view.get_by_text(f"On {exported['cpu']['name']}.")).to_be_visible()
    for result in exported["results"]:
        for who, times in result["pairs"].items():
            result["pairs"][who] = [seconds / 4 for seconds in times]
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps(exported))
    with page.expect_file_chooser() as chooser:
        view.get_by_role("button", name="Compare with a file").click()
    chooser.value.set_files(other)
    expect(view.get_by_text(f"Against theirs.json, measured on {exported['cpu']['name']}")).to_be_visible()
    assert {row.get_by_role("cell").last.text_content() for row in rows.all()} == {"4.00"}

    view.get_by_label("Shapes with").fill("")
    view.get_by_role("button", name="Measure").click()
    expect(view.get_by_text(re.compile(r"^[1-9] of \d+ shapes measured"))).to_be_visible(timeout=ANSWERING_MS)
    view.get_by_role("button", name="Stop").click()
    expect(view.get_by_text("Stopped.")).to_be_visible()
    assert len(export(page, view)["results"]) >= 1, "what was measured is kept"
    view.get_by_label("Run on").select_option(label="this tab")
    expect(rows).to_have_count(0)
    view.get_by_role("button", name="Conformance").click()


def test_the_figures_go_on_where_an_engine_is_replaced_that_was_just_asked_for_them(
    page: Page, worker: RunningWorker
) -> None:
    def asks_for_figures(request: Request) -> bool:
        return '"stats"' in (request.post_data or "")

    held: list[Route] = []

    def keep_the_first(route: Route) -> None:
        if not held and asks_for_figures(route.request):
            return held.append(route)
        route.continue_()

    page.route(CALLS, keep_the_first)
    with page.expect_request(asks_for_figures):
        pass
    connect(page, worker.url, TOKEN)
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=ANSWERING_MS)
    for _ in range(2):
        with page.expect_request(asks_for_figures):
            pass
    page.unroute(CALLS)


def test_what_keeps_the_page_from_a_worker_is_said_with_what_to_do(
    chromium: Browser, tiny_page: PageServer, worker: RunningWorker
) -> None:
    page = chromium.new_page(service_workers="block")
    page.goto(tiny_page.url)
    alert = page.get_by_role("alert")
    connect(page, worker.url, "another token")
    expect(alert).to_contain_text("The local worker needs its token")
    connect(page, "http://192.168.1.5:8643")
    expect(alert).to_contain_text("it has to be like http://127.0.0.1:8643")
    origin = tiny_page.url.replace("127.0.0.1", "localhost")
    page.goto(origin)
    connect(page, worker.url, TOKEN)
    port = worker.url.rpartition(":")[2]
    expect(alert).to_contain_text(f"pageloom serve --port {port} --allow-origin {origin.rstrip('/')}")
    page.close()


def test_a_worker_that_stops_is_told_and_the_tab_can_take_over(
    chromium: Browser, tiny_page: PageServer, tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path / f"{MODEL}.gguf")
    page = chromium.new_page(service_workers="block")
    with serving(model, tmp_path, "--allow-origin", tiny_page.url.rstrip("/"), backend=QUICK) as worker:
        page.goto(tiny_page.url)
        connect(page, worker.url)
        expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=ANSWERING_MS)
        assert worker.stop() == 0
    alert = page.get_by_role("alert").filter(has_text="The engine has stopped")
    expect(alert).to_contain_text(f"The local worker at {worker.url} stopped")
    alert.get_by_role("button", name="Connect again").click()
    expect(page.get_by_role("alert").filter(has_text="does not answer")).to_contain_text("pageloom serve --port")
    page.get_by_label("in this tab").check()
    expect(page.get_by_role("button", name="Load SmolLM2 135M Instruct")).to_be_enabled()
    expect(alert).to_have_count(0)
    page.close()


def test_a_load_that_is_under_way_ends_when_a_worker_takes_over(
    chromium: Browser, tiny_page: PageServer, worker: RunningWorker
) -> None:
    page = chromium.new_page(service_workers="block")
    hold(page, MODEL_FILE)
    page.goto(tiny_page.url)
    with page.expect_request(MODEL_FILE):
        page.get_by_role("button", name="Load SmolLM2 135M Instruct").click()
    connect(page, worker.url, TOKEN)
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=ANSWERING_MS)
    expect(page.get_by_role("tab", name="Batch")).to_be_focused()
    expect(page.locator("#models")).to_contain_text("The load was cancelled")
    expect(page.locator("#status")).to_contain_text(MODEL)
    page.close()


def test_choosing_the_tab_ends_a_connection_that_is_being_made(
    chromium: Browser, tiny_page: PageServer, worker: RunningWorker
) -> None:
    page = chromium.new_page(service_workers="block")
    held = hold(page, HEALTH)
    requests: list[tuple[str, str]] = []
    page.on("request", lambda request: requests.append((request.method, request.url)))
    page.goto(tiny_page.url)
    with page.expect_request(HEALTH):
        connect(page, worker.url, TOKEN)
    page.get_by_label("in this tab").check()
    with page.expect_response(HEALTH):
        held[0].continue_()
    expect(page.get_by_role("button", name="Load SmolLM2 135M Instruct")).to_be_visible()
    page.unroute(HEALTH)
    connect(page, worker.url, TOKEN)
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true", timeout=ANSWERING_MS)
    assert requests.count(("POST", f"{worker.url}/v1/session")) == 1
    page.close()


def test_a_file_that_the_system_opens_loads_where_it_can_be_seen_and_a_second_one_is_told(
    chromium: Browser, tiny_page: PageServer
) -> None:
    page = chromium.new_page(service_workers="block")
    page.add_init_script(AS_DESKTOP)
    hold(page, MODEL_FILE)
    page.goto(tiny_page.url)
    page.get_by_label("on a local worker").check()
    expect(page.locator("#models")).to_be_hidden()
    page.evaluate("openFile('first.gguf')")
    expect(page.get_by_label("in this tab")).to_be_checked()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    page.evaluate("openFile('second.gguf')")
    expect(page.get_by_role("status").filter(has_text="second.gguf was not opened")).to_be_visible()
    page.close()
