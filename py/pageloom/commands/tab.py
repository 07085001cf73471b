"""`pageloom tab`: a batch of prompts in a headless Chromium tab, through the page's own JavaScript API."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from pageloom.commands import batch_files
from pageloom.commands.batch_files import RowWriter, pool_settings
from pageloom.commands.browser import find_browser
from pageloom.commands.page_files import find_page
from pageloom.commands.page_server import PageServer, serving
from pageloom.commands.summary import adapter_name, print_summary
from pageloom.commands.tab_driver import TabListener, open_tab, run_batch
from pageloom.commands.terminal import ProgressLine
from pageloom.jobs import Job, RefusedJob, error_row

if TYPE_CHECKING:
    from playwright.sync_api import Page


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tab",
        help="run a batch of prompts in a headless Chromium tab",
        description="Runs every prompt of a JSON Lines file at once in a headless Chromium tab, on WebGPU.",
    )
    batch_files.add_options(parser)
    browser = parser.add_argument_group("the browser")
    browser.add_argument("--page", metavar="DIR|URL", help="a built page, or one that is served; default: dist/")
    browser.add_argument("--browser", metavar="PATH", help="Chromium or Chrome; default: the one found")
    browser.add_argument("--headed", action="store_true", help="show the browser's window")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    entries = batch_files.read_jobs(options)
    jobs = [entry for entry in entries if isinstance(entry, Job)]
    browser = find_browser(options.browser)
    with (
        _served(options.page, options.model) as (page_url, model_url),
        batch_files.row_writer(options) as writer,
    ):
        for entry in entries:
            if isinstance(entry, RefusedJob):
                writer.put(error_row(entry.index, entry.error))
        if jobs:
            with open_tab(page_url, browser, options.gpu, headed=options.headed) as page:
                _run_jobs(page, page_url, model_url, jobs, options, writer)
    return 1 if writer.failed else 0


def _run_jobs(
    page: Page, page_url: str, model_url: str, jobs: Sequence[Job], options: argparse.Namespace, writer: RowWriter
) -> None:
    progress = ProgressLine(sys.stderr)
    ended = 0

    def write(row: Mapping[str, Any]) -> None:
        """The page numbers the rows that it is given; in the file the refused lines have numbers too."""
        writer.put({**row, "index": jobs[row["index"]].index})

    def on_row(row: Mapping[str, Any]) -> None:
        nonlocal ended
        ended += 1
        write(row)

    listener = TabListener(
        on_progress=lambda told: progress.show_stage(told["stage"], told["done"], told["total"]),
        on_row=on_row,
        on_tokens=lambda tokens: progress.show(
            "Running", ended, len(jobs), f"{ended} of {len(jobs)} rows, {tokens} tokens"
        ),
    )
    rows = [job.to_fields() for job in jobs]
    run = run_batch(page, page_url, model_url, rows, pool_settings(options), listener)
    progress.clear()
    # A row is told as it ends so that it is written at once; the outcome has them all, told or not.
    for row in run.results:
        write(row)
    found = run.adapter
    description = found["description"] or f"{found['vendor']} {found['architecture']}"
    adapter = adapter_name(description, found["adapter_class"], has_f16=found["f16"], home="in a browser tab")
    print_summary(sys.stderr, run.results, run.seconds, run.stats, adapter)


@contextmanager
def _served(page: str | None, model: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the page and of the model, served on loopback unless the page is an address already."""
    name = f"model-file/{quote(model.name)}"
    if page is not None and urlsplit(page).scheme in ("http", "https"):
        parts = urlsplit(page)
        with serving(PageServer({"model-file": model}, allowed_origin=f"{parts.scheme}://{parts.netloc}")) as server:
            yield page, server.url + name
    else:
        folder = find_page(Path(page) if page else None)
        with serving(PageServer({"": folder, "model-file": model})) as server:
            yield server.url, server.url + name
