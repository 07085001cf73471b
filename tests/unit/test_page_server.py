"""The loopback server gives out its folders' files, whole or by range, and nothing else."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pageloom.commands.page_server import PageServer, parse_range, serving
from pageloom.errors import InvalidArgument, NotSupported

MODEL = bytes(range(256)) * 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("served")
    page = folder / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<title>page</title>")
    (page / "assets" / "main-1a2b.js").write_text("export {};")
    (page / "python.wasm").write_bytes(b"\0asm")
    (page / "headers.json").write_text('{"*": {"X-Policy": "strict"}, "index.html": {"X-Policy": "strictest"}}')
    (folder / "secret.txt").write_text("not for serving")
    (page / "way-out").symlink_to(folder)
    (page / "circle").symlink_to(page / "circle")
    (folder / "my model.gguf").write_bytes(MODEL)
    with serving(PageServer({"": page, "model": folder / "my model.gguf"})) as running:
        yield running


def fetch(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response, response.read()


def test_a_folder_answers_with_its_index_page(server: PageServer):
    response, body = fetch(server, "/?view=chat")
    assert (response.status, body) == (200, b"<title>page</title>")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("/assets/main-1a2b.js", "text/javascript; charset=utf-8"), ("/python.wasm", "application/wasm")],
)
def test_scripts_and_wasm_have_the_types_that_browsers_insist_on(server: PageServer, path: str, media_type: str):
    assert fetch(server, path)[0].headers["Content-Type"] == media_type


def test_every_file_has_the_headers_that_the_page_asks_for(server: PageServer):
    for path, policy in (("/", "strictest"), ("/python.wasm", "strict"), ("/model/m.gguf", "strict")):
        assert fetch(server, path)[0].headers["X-Policy"] == policy


def test_files_of_a_folder_without_headers_are_not_taken_for_others(tmp_path: Path):
    (tmp_path / "a.txt").write_text("a")
    with serving(PageServer({"": tmp_path})) as server:
        assert fetch(server, "/a.txt")[0].headers["X-Content-Type-Options"] == "nosniff"


def test_a_range_is_answered_by_just_those_bytes(server: PageServer):
    response, body = fetch(server, "/model/any-name.gguf", Range="bytes=250-260")
    assert (response.status, body) == (206, MODEL[250:261])
    assert response.headers["Content-Range"] == f"bytes 250-260/{len(MODEL)}"


def test_a_range_past_the_end_is_refused_with_the_size(server: PageServer):
    response, _ = fetch(server, "/model/m.gguf", Range=f"bytes={len(MODEL)}-")
    assert response.status == 416
    assert response.headers["Content-Range"] == f"bytes */{len(MODEL)}"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None),
        ("bytes=0-0", range(1)),
        ("bytes=3-", range(3, 10)),
        ("bytes=8-99", range(8, 10)),
        ("bytes=-4", range(6, 10)),
        ("bytes=-99", range(10)),
        ("bytes=5-2", None),
        ("bytes=0-1,4-5", None),
        ("bytes=-", None),
        ("lines=0-1", None),
    ],
)
def test_ranges_read_as_rfc_9110_says(header: str | None, wanted: range | None):
    assert parse_range(header, 10) == wanted


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_without_a_byte_is_an_error(header: str):
    with pytest.raises(ValueError, match="no byte"):
        parse_range(header, 10)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "//etc/passwd",
        "/way-out/secret.txt",
        "/nothing",
        "/a%00b",
        "/circle",
        "/" + "n" * 5000,
    ],
)
def test_what_is_outside_the_folders_is_not_found(server: PageServer, path: str):
    assert fetch(server, path)[0].status == 404


def test_a_url_whose_host_is_none_is_not_found(server: PageServer):
    assert server.find("http://[x/") is None


def test_a_request_for_a_foreign_host_name_is_turned_away(server: PageServer):
    assert fetch(server, "/", Host="evil.example")[0].status == 421
    assert fetch(server, "/", Host=f"localhost:{server.server_port}")[0].status == 200


def test_an_unchanged_file_is_not_sent_again(server: PageServer):
    etag = fetch(server, "/")[0].headers["ETag"]
    response, body = fetch(server, "/", If_None_Match=etag)
    assert (response.status, body) == (304, b"")
    assert fetch(server, "/assets/main-1a2b.js")[0].headers["Cache-Control"].endswith("immutable")


def test_head_gives_the_length_without_the_bytes(server: PageServer):
    response, body = fetch(server, "/model/m.gguf", "HEAD")
    assert (response.headers["Content-Length"], body) == (str(len(MODEL)), b"")


def test_a_taken_port_is_said_in_words(server: PageServer):
    with pytest.raises(NotSupported, match=f"port {server.server_port}"):
        PageServer({"": Path()}, server.server_port)


@pytest.mark.parametrize("port", [-1, 80000])
def test_a_number_that_is_no_port_is_refused_with_the_range(tmp_path: Path, port: int):
    with pytest.raises(InvalidArgument, match=f"{port}; it is 0 .* to 65535"):
        PageServer({"": tmp_path}, port)
