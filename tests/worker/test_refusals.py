"""Who and what is refused, with which status: foreign pages and hosts, no token, bodies too large or broken."""

from __future__ import annotations

import json
import select
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.worker.running_worker import MODEL, PAGE, TOKEN, RunningWorker

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "0.0.0.0", "localhost.", ""]
)
def test_a_host_that_is_no_name_of_this_machine_is_misdirected(http: httpx.Client, host: str) -> None:
    assert code_of(http.post(CHAT, json=BODY, headers={"Host": host})) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]"])
def test_names_of_this_machine_are_served(http: httpx.Client, host: str) -> None:
    assert http.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1234", PAGE + ".evil.example"])
def test_a_page_of_another_origin_is_forbidden_and_can_read_nothing(strict: RunningWorker, origin: str) -> None:
    with strict.http(headers={"Origin": origin, "Authorization": f"Bearer {TOKEN}"}) as http:
        preflight = http.options(CHAT, headers={"Access-Control-Request-Method": "POST"})
        # What a page may send without a preflight: this type, and a body that happens to be JSON.
        drive_by = http.post(CHAT, content=json.dumps(BODY), headers={"Content-Type": "text/plain"})
        for response in (preflight, drive_by, http.get("/v1/models")):
            assert code_of(response) == (403, "forbidden_origin")
            assert "access-control-allow-origin" not in response.headers


def test_what_a_foreign_page_includes_is_forbidden_though_it_sends_no_origin(http: httpx.Client) -> None:
    for site in ("cross-site", "same-site"):
        assert code_of(http.get("/metrics", headers={"Sec-Fetch-Site": site})) == (403, "forbidden_origin")
    assert http.get("/metrics", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_the_page_that_is_allowed_can_ask_and_read(strict: RunningWorker) -> None:
    with strict.http(headers={"Origin": PAGE}) as http:
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Private-Network": "true"}
        preflight = http.options(CHAT, headers={**asks, "Access-Control-Request-Headers": "authorization,content-type"})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == PAGE
        assert preflight.headers["access-control-allow-private-network"] == "true"
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        answer = http.post(CHAT, json=BODY, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        refused = http.post(CHAT, json=BODY)
        assert code_of(refused) == (401, "invalid_api_key")
        assert refused.headers["access-control-allow-origin"] == PAGE, "the page can read why"


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/batches", "/v1/ops", "/nowhere"])
def test_without_the_token_nothing_but_the_health_is_told(strict: RunningWorker, given: str, path: str) -> None:
    response = httpx.get(strict.url + path, headers={"Authorization": given})
    assert code_of(response) == (401, "invalid_api_key")
    assert response.headers["www-authenticate"] == "Bearer"
    assert httpx.get(strict.url + "/healthz").json()["status"] == "ok"


def test_the_token_is_the_clients_api_key(strict: RunningWorker) -> None:
    with strict.openai(api_key=TOKEN) as client:
        assert [model.id for model in client.models.list()] == [MODEL]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"model": NaN}', b"[" * 100_000, b'{"a":' * 50_000,
        b"1" * 10_000,
    ],
    ids=["empty", "open", "array", "text", "null", "no UTF-8", "NaN", "deep array", "deep object", "long number"],
)  # fmt: skip
def test_what_is_no_json_object_is_a_bad_request(http: httpx.Client, content: bytes) -> None:
    response = http.post(CHAT, content=content, headers={"Content-Type": "application/json"})
    assert code_of(response) == (400, "invalid_argument")


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/batches"])
@pytest.mark.parametrize(
    "text", ['{"model": "\\ud83d"}', '{"\\ude00": 1}', '{"input_file_id": "a\\ud83d\\ud83d\\ude00"}']
)
def test_half_a_surrogate_pair_is_a_bad_request(http: httpx.Client, path: str, text: str) -> None:
    response = http.post(path, content=text, headers={"Content-Type": "application/json"})
    assert code_of(response) == (400, "invalid_argument")
    assert "surrogate" in response.json()["error"]["message"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_another_media_type_is_unsupported(http: httpx.Client, media_type: str) -> None:
    response = http.post(CHAT, content=json.dumps(BODY), headers={"Content-Type": media_type})
    assert code_of(response) == (415, "unsupported_media_type")


def test_a_path_or_method_that_there_is_not(http: httpx.Client) -> None:
    assert code_of(http.get("/v1/nothing")) == (404, "not_found")
    assert code_of(http.get("/../../etc/passwd")) == (404, "not_found")
    assert code_of(http.get("/v1/files/..%2f..%2fetc%2fpasswd/content")) == (404, "not_found")
    assert code_of(http.get(CHAT)) == (405, "method_not_allowed")


TEN_GB = 10 * 10**9


def resident_bytes(worker: RunningWorker) -> int:
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


@pytest.mark.parametrize(
    ("path", "limit"), [(CHAT, 4 << 20), ("/v1/ops/paged_attention", 256 << 20), ("/v1/files", 128 << 20)]
)
@pytest.mark.parametrize("chunked", [False, True], ids=["told length", "chunked"])
def test_a_body_of_10_gb_is_refused_and_not_read(worker: RunningWorker, path: str, limit: int, chunked: bool) -> None:
    """Sent until the worker answers; a worker that read on would be sent all of it."""
    before = resident_bytes(worker)
    boundary = b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\n"
    kinds = {CHAT: "application/json", "/v1/files": "multipart/form-data; boundary=b"}
    headers = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {kinds.get(path, 'application/octet-stream')}",
    ]
    headers.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {TEN_GB}")
    block = (boundary if path == "/v1/files" else b"").ljust(1 << 20, b"a")
    framed = b"%x\r\n%s\r\n" % (len(block), block) if chunked else block
    sent, answer = 0, b""
    with socket.create_connection(("127.0.0.1", worker.port)) as connection:
        connection.sendall("\r\n".join([*headers, "", ""]).encode())
        connection.setblocking(False)
        while sent < TEN_GB and b"}}" not in answer:
            readable, writable, _ = select.select([connection], [connection], [])
            try:
                if writable and not readable:
                    sent += connection.send(framed[sent % len(framed) :])
                if readable:
                    answer += connection.recv(1 << 16)
            except (BrokenPipeError, ConnectionResetError):
                assert answer, "the connection ended without an answer"
                break
    head = answer.decode().lower()
    assert head.startswith("http/1.1 413"), head[:100]
    assert "body_too_large" in head
    assert "connection: close" in head
    slack = 16 << 20
    assert sent <= (limit if chunked else 0) + slack, "it stopped reading at its limit"
    if path != "/v1/files":  # which is kept on the disk as it comes
        limit = limit if chunked else 0
    assert resident_bytes(worker) - before <= 2 * limit + slack


def test_a_request_that_is_no_http_is_refused(worker: RunningWorker) -> None:
    for junk in (b"hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", worker.port)) as connection:
            connection.sendall(junk)
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
