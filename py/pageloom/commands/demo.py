"""`pageloom demo`: serves the page with a model on this machine, and opens it where there is a display."""

from __future__ import annotations

import argparse
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pageloom.commands.browser import browser_flags, find_browser
from pageloom.commands.page_files import DEFAULT_MODEL, find_page
from pageloom.commands.page_server import PageServer, serving
from pageloom.errors import InvalidArgument, NotSupported

USUAL_PORT = 8642
"""The same each time, because the browser keeps a model by the page's address."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="serve the page on this machine and open it",
        description="Serves the page on a loopback address and opens it in a browser. Ctrl-C ends it.",
    )
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, metavar="FILE", help="the built-in model's file")
    parser.add_argument("--page", type=Path, metavar="DIR", help="a built page; default: dist/")
    parser.add_argument("--port", type=int, metavar="N", help=f"default: {USUAL_PORT}, or a free one")
    parser.add_argument("--browser", metavar="PATH", help="Chromium or Chrome; default: the one found")
    parser.add_argument("--no-open", action="store_true", help="only serve")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not options.model.is_file():
        raise InvalidArgument(f"there is no model file at {str(options.model)!r}; run `make setup`", param="model")
    server = _server({"": find_page(options.page), "model": options.model}, options.port)
    try:
        with serving(server), _window(server.url, options):
            threading.Event().wait()
    except KeyboardInterrupt:
        print("\nStopped.")
    return 0


def _server(folders: dict[str, Path], port: int | None) -> PageServer:
    if port is not None:
        return PageServer(folders, port)
    try:
        return PageServer(folders, USUAL_PORT)
    except NotSupported:
        server = PageServer(folders)
        print(
            f"Port {USUAL_PORT} is taken, using {server.server_port}: a model kept by the browser is not found there."
        )
        return server


@contextmanager
def _window(url: str, options: argparse.Namespace) -> Iterator[None]:
    """A browser's window on the page where there is a display; ended with the block."""
    print(f"Pageloom is at {url}   (Ctrl-C stops it)", flush=True)
    if options.no_open:
        yield
        return
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print("There is no display here: open that address in a Chromium or Chrome on this machine.", flush=True)
        yield
        return
    profile = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pageloom" / "browser"
    profile.mkdir(parents=True, exist_ok=True)
    command = [find_browser(options.browser), *browser_flags("auto"), f"--user-data-dir={profile}", "--new-window", url]
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")
    window = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        window.terminate()
        window.wait()
