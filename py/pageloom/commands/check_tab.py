"""The cases of `pageloom check` in a Chromium tab, from files that are made here and served beside the page."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from pageloom.attention.cases.case import Case
from pageloom.commands.batch_files import PREFERENCES
from pageloom.commands.browser import find_browser
from pageloom.commands.page_files import find_page
from pageloom.commands.page_server import PageServer, serving
from pageloom.commands.tab_driver import evaluate, open_tab
from pageloom.commands.terminal import ProgressLine
from pageloom.conformance.report import CaseReport
from pageloom.conformance.vector_files import INDEX, write_vectors

_FILES = "check-cases"
"""Where the files are served, below the page's folder."""
_CHECK = """
async ({ api, index, options }) => {
  const { checkCases, listCases } = await import(api);
  let adapter = null;
  await checkCases(await listCases(index), {
    ...options,
    onProgress: pageloomProgress,
    onAdapter: (found) => { adapter = found; },
    onReport: pageloomReport,
  });
  return adapter;
}
"""


def check_in_tab(
    cases: Sequence[Case],
    options: argparse.Namespace,
    on_report: Callable[[CaseReport], None],
    progress: ProgressLine,
) -> dict[str, Any]:
    """Run `cases` one after another in the tab, telling each report as it comes; returns the adapter's fields.

    Raises the error that the page reports, by its code, and `DeviceError` where the tab itself ends.
    """
    browser, page_folder = find_browser(options.browser), find_page(options.page)

    def on_written(written: int) -> None:
        progress.show("Writing the cases", written, len(cases), f"{written} of {len(cases)}")

    def on_fields(fields: Mapping[str, Any]) -> None:
        on_report(CaseReport.from_fields(fields))

    with tempfile.TemporaryDirectory(prefix="pageloom-") as folder:
        write_vectors(cases, Path(folder), on_written)
        with (
            serving(PageServer({"": page_folder, _FILES: Path(folder)})) as server,
            open_tab(server.url, browser, options.gpu) as page,
        ):
            page.expose_function(
                "pageloomProgress", lambda told: progress.show_stage(told["stage"], told["done"], told["total"])
            )
            page.expose_function("pageloomReport", on_fields)
            chosen = {"tier": options.tier, "prefer": PREFERENCES[options.gpu], "baseline": options.baseline}
            arguments = {
                "api": urljoin(server.url, "pageloom.js"),
                "index": urljoin(server.url, f"{_FILES}/{INDEX}"),
                "options": {name: value for name, value in chosen.items() if value is not None},
            }
            adapter: dict[str, Any] = evaluate(page, _CHECK, arguments)
            return adapter
