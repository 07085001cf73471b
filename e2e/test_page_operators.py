"""The operators view as a user sees it: the conformance cases on the browser's own adapter, without a model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pageloom.commands.page_server import PageServer
from pageloom.conformance.report import CaseReport

RUNNING_MS = 240_000

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def page(chromium: Browser, built_page: PageServer) -> Iterator[Page]:
    page = chromium.new_page(service_workers="block")  # it would answer what a test leaves unanswered
    page.goto(built_page.url)
    yield page
    page.close()


def operators(page: Page) -> Locator:
    page.get_by_role("tab", name="Operators").click()
    view = page.get_by_role("tabpanel", name="Operators")
    expect(view.get_by_role("button", name=re.compile("Run [1-9]"))).to_be_enabled()
    return view


def shown_rows(view: Locator) -> Locator:
    return view.locator("tbody tr:visible")


def test_the_cases_that_the_filter_shows_run_and_tell_error_tier_and_reasons(page: Page) -> None:
    view = operators(page)
    everything = shown_rows(view).count()
    assert everything > 50
    view.get_by_label("Cases with").fill("softcap decode")
    rows = shown_rows(view)
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("not run")
    view.get_by_role("button", name="Run 2 cases").click()
    expect(view.get_by_text("2 of 2 cases passed")).to_be_visible(timeout=RUNNING_MS)
    for row in rows.all():
        cells = row.get_by_role("cell").all_text_contents()
        assert cells[0] == "passed"
        assert re.fullmatch(r"\d\.\de-\d of \d\.\de-\d", cells[1])
        assert re.fullmatch(r"[\d.]+ %", cells[2])
        assert cells[3] == "direct-software"
        assert "direct-gpu: " in cells[4]
    expect(view.get_by_text(re.compile("On .*software adapter.*, packed f16"))).to_be_visible()
    view.get_by_label("Result").select_option("passed")
    view.get_by_label("Cases with").fill("")
    expect(shown_rows(view)).to_have_count(2)
    view.get_by_label("Result").select_option("not run")
    expect(shown_rows(view)).to_have_count(everything - 2)
    with page.expect_download() as download:
        view.get_by_role("button", name="Export JSON").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert exported["counts"] == {"passed": 2, "failed": 0, "skipped": 0}
    assert exported["adapter"]["adapter_class"] == "software"
    for fields in exported["cases"]:
        report = CaseReport.from_fields(fields)
        assert report.outcome == "passed"
        assert 0 < report.share <= 1


@pytest.mark.slow
def test_every_case_of_the_page_passes_on_the_tier_that_a_cpu_adapter_takes(page: Page) -> None:
    view = operators(page)
    everything = shown_rows(view).count()
    view.get_by_role("button", name=f"Run {everything} cases").click()
    expect(view.get_by_text(f"{everything} of {everything} cases passed")).to_be_visible(timeout=RUNNING_MS)
    assert set(view.locator("tbody tr td:nth-of-type(4)").all_text_contents()) == {"direct-software"}


def test_a_run_stops_and_another_can_start(page: Page) -> None:
    view = operators(page)
    view.get_by_role("button", name=re.compile("^Run ")).click()
    expect(view.get_by_text(re.compile("[1-9][0-9]* of [0-9]+ cases passed"))).to_be_visible(timeout=RUNNING_MS)
    view.get_by_role("button", name="Stop").click()
    expect(view.get_by_text(re.compile("^Stopped: [1-9]"))).to_be_visible()
    assert shown_rows(view).filter(has_text="not run").count() > 0
    view.get_by_label("Cases with").fill("paged/sink/decode_window")
    view.get_by_role("button", name="Run 1 case").click()
    expect(view.get_by_text("1 of 1 cases passed")).to_be_visible(timeout=RUNNING_MS)


def test_tiers_are_measured_beside_their_limits_and_against_another_report(page: Page, tmp_path: Path) -> None:
    page.get_by_role("tab", name="Operators").click()
    view = page.get_by_role("tabpanel", name="Operators")
    view.get_by_role("button", name="Benchmarks").click()
    view.get_by_role("button", name="Measure").click()
    expect(view.get_by_text(re.compile(r"timed by .*It reads [\d.]+ GB/s and computes"))).to_be_visible(
        timeout=RUNNING_MS
    )
    expect(view.get_by_text(re.compile(r"^[1-9] of \d+ shapes measured"))).to_be_visible(timeout=RUNNING_MS)
    view.get_by_role("button", name="Stop").click()
    expect(view.get_by_text("Stopped.")).to_be_visible()
    with page.expect_download() as download:
        view.get_by_role("button", name="Export JSON").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert exported["backend"] == "tab"
    assert exported["read_bytes_per_second"] > 0
    measured = [row for row in exported["results"] if row["seconds"]]
    assert {row["tier"] for row in measured} >= {"direct-software", "gather-then-flash"}
    assert all(len(row["seconds"]) == 5 and min(row["seconds"]) > 0 and row["limit"] > 0 for row in measured)
    for row in measured:
        row["seconds"] = [seconds / 2 for seconds in row["seconds"]]
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps(exported))
    with page.expect_file_chooser() as chooser:
        view.get_by_role("button", name="Compare with a file").click()
    chooser.value.set_files(other)
    expect(view.get_by_text("Against theirs.json, measured on")).to_be_visible()
    lines = shown_rows(view).filter(has_not_text="not run")
    assert [line.get_by_role("cell").last.text_content() for line in lines.all()] == ["2.00"] * len(measured)


def test_a_case_that_cannot_be_fetched_ends_the_run_with_its_reason(page: Page) -> None:
    page.route("**/*.safetensors", lambda route: route.fulfill(status=404))
    view = operators(page)
    view.get_by_label("Cases with").fill("paged/sink/decode")
    view.get_by_role("button", name=re.compile("^Run ")).click()
    expect(view.get_by_role("alert")).to_contain_text("HTTP 404", timeout=RUNNING_MS)
    expect(view.get_by_role("button", name=re.compile("^Run "))).to_be_enabled()


def test_a_page_without_cases_says_so(page: Page) -> None:
    page.route("**/vectors/index.json", lambda route: route.fulfill(status=404))
    page.get_by_role("tab", name="Operators").click()
    view = page.get_by_role("tabpanel", name="Operators")
    expect(view.get_by_role("alert")).to_contain_text("there are no conformance cases at")
    expect(view.get_by_role("button", name="Run 0 cases")).to_be_disabled()


def test_the_view_is_reached_and_run_from_the_keyboard(page: Page) -> None:
    page.get_by_role("tab", name="See inside").click()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Operators")).to_be_focused()
    view = page.get_by_role("tabpanel", name="Operators")
    expect(view.get_by_role("button", name=re.compile("Run [1-9]"))).to_be_enabled()
    for _ in ("Conformance", "Benchmarks", "Cases with"):
        page.keyboard.press("Tab")
    page.keyboard.type("no such case")
    expect(view.get_by_role("button", name="Run 0 cases")).to_be_disabled()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_view_fits_the_window_in_light_and_dark(page: Page, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    view = operators(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heading = view.get_by_role("columnheader").first
    colours = heading.evaluate("(node) => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]")
    light, dark = (sum(map(float, re.findall(r"[\d.]+", colour)[:3])) for colour in colours)
    assert (light < dark) == (scheme == "light")


def test_the_command_runs_the_cases_in_a_tab(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    command = [sys.executable, "-m", "pageloom", "check", "--backend", "tab", "--gpu", "software", "--quick"]
    ran = subprocess.run(
        [*command, "--baseline", "--case", "paged/int4/*/decode", "--json", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 of 2 cases passed, 0 failed, 0 skipped" in ran.stdout
    written = json.loads(path.read_text())
    assert (written["backend"], written["adapter"]["home"], written["adapter"]["f16"]) == ("tab", "browser", False)
    assert [case["alone"] for case in written["cases"]] == ["same bits"] * 2


def test_a_wrong_tier_in_a_tab_is_a_wrong_argument() -> None:
    command = [sys.executable, "-m", "pageloom", "check", "--backend", "tab", "--gpu", "software", "--quick"]
    ran = subprocess.run(
        [*command, "--case", "paged/sink/decode", "--tier", "warp"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "there is no tier 'warp'" in ran.stderr
