"""Sources against files and HTTP servers, well-behaved and not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.source import BytesSource, FileSource, HttpSource, RangedSource

DATA = bytes(range(256)) * 4


@pytest.fixture(params=["bytes", "file", "http"])
async def source(request: pytest.FixtureRequest, tmp_path: Path, serve: Callable[..., str]) -> RangedSource:
    if request.param == "bytes":
        return BytesSource(DATA)
    if request.param == "http":
        return await HttpSource.open(serve())
    (tmp_path / "data").write_bytes(DATA)
    return FileSource(tmp_path / "data")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(answer)`: the URL of a server whose GET is `answer(handler, first, last)`; by default it serves ranges."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[BaseHTTPRequestHandler, int, int], None] | None = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                (answer or send_range)(self, first, last)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/model.gguf"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, content_range: str = "", tag: str = '"1"') -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.send_header("ETag", tag)
    if content_range:
        handler.send_header("Content-Range", content_range)
    handler.end_headers()
    handler.wfile.write(body)


def send_range(handler: BaseHTTPRequestHandler, first: int, last: int) -> None:
    send(handler, 206, DATA[first : last + 1], f"bytes {first}-{last}/{len(DATA)}")


async def test_reads_any_range(source: RangedSource) -> None:
    assert source.size == len(DATA)
    for offset, length in [(0, 1), (0, len(DATA)), (255, 2), (len(DATA) - 1, 1), (7, 0), (len(DATA), 0)]:
        assert await source.read(offset, length) == DATA[offset : offset + length]


@pytest.mark.parametrize(("offset", "length"), [(0, len(DATA) + 1), (len(DATA), 1), (-1, 2), (0, -1), (2**62, 2**62)])
async def test_refuses_a_range_outside(source: RangedSource, offset: int, length: int) -> None:
    with pytest.raises(BadModelFile, match="outside the source"):
        await source.read(offset, length)


def test_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=r"cannot open .*missing"):
        FileSource(tmp_path / "missing")


async def test_notices_a_file_cut_short_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    with FileSource(path) as source:
        path.write_bytes(DATA[:100])
        with pytest.raises(BadModelFile, match="cut short"):
            await source.read(50, 100)


async def test_refuses_a_server_that_ignores_ranges(serve: Callable[..., str]) -> None:
    with pytest.raises(NotSupported, match="ignores byte ranges"):
        await HttpSource.open(serve(lambda handler, first, last: send(handler, 200, DATA)))


@pytest.mark.parametrize(
    ("body", "content_range"),
    [(b"x", ""), (b"x", "bytes 1-1/10"), (b"", "bytes 0-0/10"), (b"x", "bytes 0-0/*"), (b"xy", "bytes 0-0/10")],
)
async def test_refuses_an_answer_that_is_not_the_range(
    serve: Callable[..., str], body: bytes, content_range: str
) -> None:
    with pytest.raises(BadModelFile, match="the server sent"):
        await HttpSource.open(serve(lambda handler, first, last: send(handler, 206, body, content_range)))


async def test_notices_a_file_that_changed_on_the_server(serve: Callable[..., str]) -> None:
    tags = iter(['"1"', '"1"', '"2"'])

    def answer(handler: BaseHTTPRequestHandler, first: int, last: int) -> None:
        send(handler, 206, DATA[first : last + 1], f"bytes {first}-{last}/{len(DATA)}", next(tags))

    source = await HttpSource.open(serve(answer))
    assert await source.read(0, 4) == DATA[:4]
    with pytest.raises(BadModelFile, match="changed while it was read"):
        await source.read(4, 4)


async def test_reports_an_http_error_with_its_url(serve: Callable[..., str]) -> None:
    url = serve(lambda handler, first, last: send(handler, 404, b""))
    with pytest.raises(BadModelFile, match=f"cannot read {url}: .*404"):
        await HttpSource.open(url)


@pytest.mark.parametrize("answer", [b"", b"no HTTP at all\r\n", b"HTTP/1.1 206 OK\r\nA: " + bytes(70000)])
async def test_reports_a_server_that_does_not_speak_http(serve: Callable[..., str], answer: bytes) -> None:
    def send_raw(handler: BaseHTTPRequestHandler, first: int, last: int) -> None:
        handler.wfile.write(answer)

    url = serve(send_raw)
    with pytest.raises(BadModelFile, match=f"cannot read {url}"):
        await HttpSource.open(url)


@pytest.mark.parametrize("url", ["http://[", "http://", "http://localhost:port/x", "http://local host/x\n"])
async def test_reports_a_url_that_is_none(url: str) -> None:
    with pytest.raises(BadModelFile, match="cannot read http"):
        await HttpSource.open(url)


async def test_reports_a_file_that_can_no_longer_be_read(tmp_path: Path) -> None:
    with FileSource(tmp_path) as folder, pytest.raises(BadModelFile, match="can no longer be read: Is a directory"):
        await folder.read(0, 1)


async def test_reads_nothing_but_http() -> None:
    with pytest.raises(NotSupported, match="neither an http nor an https"):
        await HttpSource.open("file:///etc/hostname")
