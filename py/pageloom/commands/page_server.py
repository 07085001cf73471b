"""A loopback HTTP server for the built page and the models that it may load.

It serves the files of the folders it is given and nothing else: on 127.0.0.1, to requests for a loopback host name
(another name would be a foreign site's, pointed at this address), in whole or by one range of bytes.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from pageloom.errors import InvalidArgument, NotSupported

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".gguf": "application/octet-stream",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_HOSTS = ("127.0.0.1", "localhost")
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_CHUNK_BYTES = 1 << 20


class PageServer(ThreadingHTTPServer):
    """`folders` maps the first part of a path to a folder, or to one file served under any name; "" is the page."""

    daemon_threads = True

    def __init__(self, folders: Mapping[str, Path], port: int = 0, allowed_origin: str | None = None) -> None:
        """Binds 127.0.0.1; port 0 takes a free one. `allowed_origin` is another page's that may read the files.

        Raises `InvalidArgument` where the port is no port's number, `NotSupported` where it is taken or forbidden.
        """
        if not 0 <= port <= 65535:
            raise InvalidArgument(f"the port is {port}; it is 0 (a free one) to 65535", param="port")
        self.allowed_origin = allowed_origin
        self.folders = {name: path.resolve() for name, path in folders.items()}
        self.headers = _headers_of_page(self.folders.get(""))
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise NotSupported(
                f"cannot listen on port {port}: {error.strerror}; choose another", param="port"
            ) from error

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def find(self, url_path: str) -> Path | None:
        """The file that a request's path names; None where there is none or it leaves its folder."""
        try:
            parts = PurePosixPath(unquote(urlsplit(url_path).path)).parts[1:]
        except ValueError:  # a whole URL with a host that is none
            return None
        mount = parts[0] if parts and parts[0] in self.folders else ""
        root = self.folders.get(mount)
        if root is None:
            return None
        if root.is_file():
            return root
        try:
            path = root.joinpath(*(parts[1:] if mount else parts)).resolve()
            path = path / "index.html" if path.is_dir() else path
            return path if path.is_relative_to(root) and path.is_file() else None
        except (OSError, ValueError, RuntimeError):  # too long a name, a zero byte in it, or links in a circle
            return None


def _headers_of_page(page: Path | None) -> dict[str, dict[str, str]]:
    """The headers that a built page asks for, by name of file; "*" has those of the others."""
    file = page / "headers.json" if page else None
    headers = json.loads(file.read_text()) if file and file.is_file() else {}
    return {"*": {"X-Content-Type-Options": "nosniff"}, **headers}


@contextmanager
def serving(server: PageServer) -> Iterator[PageServer]:
    """Answer requests from a thread until the block is left."""
    thread = threading.Thread(target=server.serve_forever, name="page-server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def parse_range(header: str | None, size: int) -> range | None:
    """The bytes that a Range header asks of `size`; None is the whole file (no header, or one not understood).

    Raises `ValueError` where no byte of the range is there (RFC 9110, section 14.1.2).
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first == "":
        wanted = range(max(0, size - int(last)), size)
    else:
        if last and int(last) < int(first):
            return None
        wanted = range(int(first), min(size, int(last) + 1) if last else size)
    if not wanted:
        raise ValueError(f"no byte of {header} in {size} bytes")
    return wanted


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "Pageloom"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in _HOSTS:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, explain=f"Only {' and '.join(_HOSTS)} are served.")
            return
        path = self.server.find(self.path)
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            with path.open("rb") as file:
                self._send_file(path, file, with_body=with_body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the browser went away; it has stopped reading

    def _send_file(self, path: Path, file: BinaryIO, *, with_body: bool) -> None:
        status = os.fstat(file.fileno())
        etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        if self.headers.get("If-None-Match") == etag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", etag)
            self.end_headers()
            return
        try:
            wanted = parse_range(self.headers.get("Range"), status.st_size)
        except ValueError:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{status.st_size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = range(status.st_size) if wanted is None else wanted
        self.send_response(HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {body.start}-{body.stop - 1}/{status.st_size}")
        self.send_header("Content-Type", MEDIA_TYPES.get(path.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", formatdate(status.st_mtime, usegmt=True))
        # A name with a hash in it never changes its content; every other is asked for again and mostly not modified.
        lasting = self.path.startswith("/assets/")
        self.send_header("Cache-Control", "max-age=31536000, immutable" if lasting else "no-cache")
        for name, value in self.server.headers.get(path.name, self.server.headers["*"]).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and _copy(file, self.wfile, body) != len(body):
            self.close_connection = True  # the file shrank meanwhile: the promised length can only be broken off

    def end_headers(self) -> None:
        if self.server.allowed_origin:
            self.send_header("Access-Control-Allow-Origin", self.server.allowed_origin)
            self.send_header("Access-Control-Expose-Headers", "Content-Range, ETag")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: the commands' own lines are what a person reads."""


def _copy(source: BinaryIO, sink: BufferedIOBase, wanted: range) -> int:
    """How many of the wanted bytes were there to copy."""
    source.seek(wanted.start)
    left = len(wanted)
    while left > 0 and (chunk := source.read(min(left, _CHUNK_BYTES))):
        sink.write(chunk)
        left -= len(chunk)
    return len(wanted) - left
