"""Tokens per second in a Chromium tab: one sequence alone, and many at once.

Needs the built page (`npm run build`), the built-in model and a Chromium; nothing of it goes through Playwright, so it
also runs where only the browser itself is. The peer is one sequence at a time, in the same tab and the same run.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import subprocess
import sys
import tempfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from pageloom.commands.browser import browser_flags, find_browser

ROOT = Path(__file__).parents[1]


class Handler(SimpleHTTPRequestHandler):
    """The built page, this benchmark's page beside it, the models, and one place to post a report to."""

    reports: ClassVar[queue.Queue[dict[str, Any]]] = queue.Queue()
    extensions_map: ClassVar[dict[str, str]] = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0].lstrip("/")
        if name == "tab_throughput.html":
            return str(ROOT / "bench" / name)
        if name.startswith("model/"):
            return str(ROOT / "models" / Path(name).name)
        return str(ROOT / "dist" / name)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.reports.put(json.loads(self.rfile.read(length)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the report is what is read."""


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    query = f"tokens={arguments.tokens}&counts=1,{arguments.sequences}&repeats={arguments.repeats}"
    with tempfile.TemporaryDirectory() as profile:
        command = [
            find_browser(arguments.browser),
            "--headless",
            "--no-sandbox",
            *browser_flags(arguments.gpu),
            f"--user-data-dir={profile}",
            f"http://127.0.0.1:{server.server_port}/tab_throughput.html?{query}",
        ]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            return Handler.reports.get(timeout=arguments.timeout)
        except queue.Empty:
            browser.kill()
            sys.exit(f"no report within {arguments.timeout} s; the browser said: {browser.communicate()[1][-2000:]!r}")
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--browser")
    parser.add_argument("--gpu", choices=["auto", "software", "hardware"], default="auto")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a sequence")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600.0)
    parser.add_argument("--json", type=Path, help="write the whole report, token ids included")
    arguments = parser.parse_args()
    report = measure(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(report))
    if "error" in report:
        sys.exit(report["error"])
    print(f"adapter: {report['adapter']}; loaded in {report['load_ms'] / 1000:.1f} s")
    rates: dict[int, list[float]] = {}
    for run in report["runs"]:
        rates.setdefault(run["sequences"], []).append(run["tokens_per_second"])
    for sequences, values in rates.items():
        first = statistics.median(r["first_token_ms"] for r in report["runs"] if r["sequences"] == sequences)
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(
            f"{sequences:3} sequences: {statistics.median(values):.1f} tokens/s ({spread}), first token {first:.0f} ms"
        )
    alone, together = (statistics.median(values) for values in rates.values())
    print(f"together / one after another: {together / alone:.2f} times the tokens a second")


if __name__ == "__main__":
    main()
