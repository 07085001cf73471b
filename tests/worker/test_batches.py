"""Batches, through the official client: rows in, each answered once, errors apart from answers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.worker.batch_kit import submit, upload, wait
from tests.worker.running_worker import MODEL, RunningWorker

CHAT = "/v1/chat/completions"


def row(custom_id: str, content: str = "hello", **options: Any) -> dict[str, Any]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": {**body, **options}}


def lines(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def test_every_row_is_answered_as_it_would_be_by_itself(client: OpenAI) -> None:
    rows = [row(f"row {index}", "hello " * index, max_tokens=index) for index in range(1, 20)]
    batch = wait(client, submit(client, rows))
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (19, 19, 0)
    assert batch.error_file_id is None
    results = lines(client, batch.output_file_id)
    assert [result["custom_id"] for result in results] == [given["custom_id"] for given in rows]
    for given, result in zip(rows, results, strict=True):
        assert result["error"] is None
        assert result["response"]["status_code"] == 200
        direct = client.chat.completions.create(**given["body"]).choices[0].message.content
        assert result["response"]["body"]["choices"][0]["message"]["content"] == direct


def test_completions_are_a_batch_too(client: OpenAI) -> None:
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 3, "temperature": 0}
    rows = [{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}]
    batch = wait(client, submit(client, rows, endpoint="/v1/completions"))
    (result,) = lines(client, batch.output_file_id)
    assert result["response"]["body"]["choices"][0]["text"] == client.completions.create(**body).choices[0].text


def test_rows_that_cannot_be_served_are_errors_and_the_others_are_answered(client: OpenAI) -> None:
    batch = wait(client, submit(client, [row("good"), row("hot", temperature=9), row("long", content="a" * 2000)]))
    assert batch.status == "completed"
    assert [result["custom_id"] for result in lines(client, batch.output_file_id)] == ["good"]
    errors = lines(client, batch.error_file_id)
    assert [error["custom_id"] for error in errors] == ["hot", "long"]
    assert [error["response"]["status_code"] for error in errors] == [400, 400]
    assert errors[0]["response"]["body"]["error"]["param"] == "temperature"


@pytest.mark.parametrize(
    ("content", "line", "param"),
    [
        (b"", 1, None),
        (b"\n\n", 1, None),
        (b"nonsense", 1, None),
        (b'\n{"custom_id": "a"', 2, None),
        (json.dumps(row("")).encode(), 1, "custom_id"),
        (json.dumps({**row("a"), "url": "/v1/embeddings"}).encode(), 1, "url"),
        (json.dumps({**row("a"), "method": "GET"}).encode(), 1, "method"),
        (json.dumps({**row("a"), "body": []}).encode(), 1, "body"),
        (json.dumps(row("a", model="gpt-4o")).encode(), 1, "model"),
        (json.dumps(row("a", stream=True)).encode(), 1, "stream"),
        (b"\n".join([json.dumps(row("a")).encode()] * 2), 2, "custom_id"),
        (b"\xff\xff", 1, None),
        (json.dumps(row("half a pair: \ud83d")).encode(), 1, None),
    ],
)
def test_a_file_with_a_line_that_is_no_request_fails_as_a_whole_and_says_where(
    client: OpenAI, content: bytes, line: int, param: str | None
) -> None:
    batch = client.batches.create(input_file_id=upload(client, content), endpoint=CHAT, completion_window="24h")
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [(error.line, error.param) for error in batch.errors.data] == [(line, param)]


def test_a_byte_order_mark_and_empty_lines_are_passed_over(client: OpenAI) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(row("a")).encode() + b"\r\n\r\n" + json.dumps(row("b")).encode() + b"\n\n"
    batch = client.batches.create(input_file_id=upload(client, content), endpoint=CHAT, completion_window="24h")
    assert [result["custom_id"] for result in lines(client, wait(client, batch).output_file_id)] == ["a", "b"]


def test_a_batch_that_is_cancelled_keeps_what_is_finished_and_frees_the_rest(client: OpenAI) -> None:
    endless = [row(f"{index}", max_tokens=400, logit_bias={"40": 100}) for index in range(64)]
    batch = submit(client, [row("quick"), *endless])
    while not client.batches.retrieve(batch.id).request_counts.completed:  # type: ignore[union-attr]
        pass
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status == "cancelled"
    finished = [result["custom_id"] for result in lines(client, cancelled.output_file_id)]
    assert "quick" in finished
    assert len(finished) < 65
    assert client.batches.cancel(batch.id).status == "cancelled"
    following = wait(client, submit(client, [row("after")]))
    assert following.status == "completed"
    assert client.batches.retrieve(batch.id).status == "cancelled"


def test_a_batch_leaves_half_of_the_places_to_clients(worker: RunningWorker, client: OpenAI) -> None:
    batch = submit(client, [row(f"{index}", max_tokens=400, logit_bias={"40": 100}) for index in range(64)])
    half = worker.max_running // 2
    while (running := worker.metrics()["pageloom_requests_running"]) < half:
        pass
    assert running == half
    with client.chat.completions.create(**row("")["body"], stream=True) as stream:
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    assert client.batches.cancel(batch.id).request_counts.completed < 64  # type: ignore[union-attr]


def test_batches_are_listed_newest_first_a_page_at_a_time(client: OpenAI) -> None:
    made = [submit(client, [row("a")], metadata={"number": str(index)}).id for index in range(3)]
    first = client.batches.list(limit=2)
    assert [batch.id for batch in first.data] == [made[2], made[1]]
    assert first.data[0].metadata == {"number": "2"}
    assert first.has_more
    assert client.batches.list(limit=2, after=made[1]).data[0].id == made[0]


def test_a_file_is_kept_told_of_and_deleted(client: OpenAI) -> None:
    name = "../../etc/passwd"
    file_id = upload(client, b"content", name)
    told = client.files.retrieve(file_id)
    assert (told.filename, told.bytes, told.purpose) == (name, 7, "batch")
    assert file_id in [file.id for file in client.files.list().data]
    assert client.files.content(file_id).content == b"content"
    assert client.files.delete(file_id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file_id)


def test_what_there_is_not_is_a_404(client: OpenAI) -> None:
    for ask in (
        lambda: client.batches.retrieve("batch_0"),
        lambda: client.batches.cancel("batch_0"),
        lambda: client.batches.list(after="batch_0"),
        lambda: client.files.content("file-output-batch_0"),
        lambda: client.files.delete("file-0"),
        lambda: client.batches.create(input_file_id="file-0", endpoint=CHAT, completion_window="24h"),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()


@pytest.mark.parametrize(
    ("options", "param"),
    [({"endpoint": "/v1/embeddings"}, "endpoint"), ({"metadata": {"a": 1}}, "metadata"), ({"colour": 1}, "colour")],
)
def test_a_batch_that_cannot_be_is_refused(http: httpx.Client, options: dict[str, Any], param: str) -> None:
    answer = http.post("/v1/batches", json={"input_file_id": "file-0", "endpoint": CHAT, **options})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def form(*parts: tuple[str, str]) -> bytes:
    written = [f"--b\r\nContent-Disposition: form-data; {how}\r\n\r\n{text}\r\n" for how, text in parts]
    return "".join([*written, "--b--\r\n"]).encode()


FILE, PURPOSE = ('name="file"; filename="f"', "content"), ('name="purpose"', "batch")


@pytest.mark.parametrize(
    ("content", "media_type", "status"),
    [
        (form(FILE, PURPOSE), "multipart/form-data; boundary=b", 200),
        (form(FILE), "multipart/form-data; boundary=b", 400),
        (form(FILE, ('name="purpose"', "fine-tune")), "multipart/form-data; boundary=b", 400),
        (form(PURPOSE), "multipart/form-data; boundary=b", 400),
        (form(PURPOSE, ('name="file"', "a field")), "multipart/form-data; boundary=b", 400),
        (form(FILE, FILE, PURPOSE), "multipart/form-data; boundary=b", 400),
        (form(*[PURPOSE] * 20), "multipart/form-data; boundary=b", 400),
        (form(FILE, PURPOSE), "multipart/form-data", 400),
        (b"--c nonsense", "multipart/form-data; boundary=b", 400),
        (b"{}", "application/json", 415),
    ],
)
def test_an_upload_is_a_form_with_one_file(http: httpx.Client, content: bytes, media_type: str, status: int) -> None:
    answer = http.post("/v1/files", content=content, headers={"Content-Type": media_type})
    assert answer.status_code == status, answer.text
