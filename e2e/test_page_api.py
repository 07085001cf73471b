"""The JavaScript API with OpenAI's shapes, from a page beside the built files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from pageloom.commands.page_server import PageServer

pytestmark = pytest.mark.timeout(600)

LOAD = """
async () => {
  const { Pageloom } = await import('./pageloom.js');
  globalThis.engine = await Pageloom.load({ model: 'built-in', store: false, num_blocks: 64 });
}
"""

Run = Callable[[str], Any]


@pytest.fixture(scope="module")
def run(chromium: Browser, built_page: PageServer) -> Iterator[Run]:
    """Awaits the body of a JavaScript function, with `engine` loaded."""
    page = chromium.new_page()
    address = f"{built_page.url}empty.html"
    page.route(address, lambda route: route.fulfill(content_type="text/html", body="<!doctype html><title>API"))
    page.goto(address)
    page.evaluate(LOAD)
    yield lambda body: page.evaluate(f"async () => {{ {body} }}")
    page.close()


def test_a_chat_completion_has_openais_shape(run: Run) -> None:
    answer = run("""
      return engine.chat.completions.create({
        messages: [{ role: 'user', content: 'Say yes.' }], max_tokens: 3, logprobs: true, top_logprobs: 2,
      });
    """)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    tokens = choice["logprobs"]["content"]
    assert len(tokens) == answer["usage"]["completion_tokens"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in tokens)
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == choice["message"]["content"]
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + len(tokens)


def test_answers_keep_their_form_beside_free_ones(run: Run) -> None:
    json_row, label, free = run("""
      const schema = { type: 'object', properties: { sky: { enum: ['blue', 'green'] } }, required: ['sky'] };
      const response_format = { type: 'json_schema', json_schema: { name: 'sky', schema } };
      return engine.batch([
        { prompt: 'The colour of the sky?', response_format, max_tokens: 40 },
        { prompt: 'I love it. Positive or negative?', choices: ['positive', 'negative'] },
        { prompt: 'Hi', max_tokens: 3 },
      ]);
    """)
    assert json_row["finish_reason"] == "stop"
    assert json.loads(json_row["text"])["sky"] in ("blue", "green")
    probabilities = label["label_probabilities"]
    assert list(probabilities) == ["positive", "negative"]
    assert label["text"] == max(probabilities, key=probabilities.get)
    assert abs(sum(probabilities.values()) - 1) < 1e-9
    assert free["usage"]["completion_tokens"] == 3


def test_a_schema_that_cannot_be_kept_is_refused_with_the_place(run: Run) -> None:
    param = run("""
      const schema = { properties: { age: { type: 'integer', minimum: 0 } } };
      const response_format = { type: 'json_schema', json_schema: { name: 'a', schema } };
      try {
        await engine.chat.completions.create({ messages: [{ role: 'user', content: 'Hi' }], response_format });
      } catch (error) {
        return error.param;
      }
    """)
    assert param == "response_format.json_schema.schema#/properties/age/minimum"


def test_the_chunks_of_a_stream_add_up_to_the_answer_without_it(run: Run) -> None:
    whole, chunks = run("""
      const body = { messages: [{ role: 'user', content: 'Name a colour.' }], max_tokens: 6 };
      const whole = await engine.chat.completions.create(body);
      const chunks = [];
      const streamed = { ...body, stream: true, stream_options: { include_usage: true } };
      for await (const chunk of await engine.chat.completions.create(streamed)) chunks.push(chunk);
      return [whole, chunks];
    """)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert text == whole["choices"][0]["message"]["content"] != ""
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}


def test_a_text_completion_continues_text_and_token_ids_alike(run: Run) -> None:
    by_text, rows = run("""
      const by_text = await engine.completions.create({ prompt: 'The capital of France is', max_tokens: 3 });
      const rows = await engine.batch([{ prompt: 'The capital of France is', raw: true, max_tokens: 3 }]);
      return [by_text, rows];
    """)
    by_ids = run(f"return engine.completions.create({{ prompt: {rows[0]['prompt_ids']}, max_tokens: 3 }});")
    assert by_text["object"] == "text_completion"
    assert by_text["choices"] == by_ids["choices"]
    assert by_text["choices"][0]["text"] == rows[0]["text"]
    assert rows[0]["text"].startswith(" Paris")


def test_a_batch_keeps_the_rows_order_and_a_bad_row_fails_alone(run: Run) -> None:
    rows, ended = run("""
      const ended = [];
      const rows = await engine.batch(
        [{ prompt: 'One', max_tokens: 4 }, { prompt: 'Two', max_token: 4 }, { prompt: 'Three', max_tokens: 1 }],
        { onRow: ({ index }) => ended.push(index) },
      );
      return [rows, ended];
    """)
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert rows[1]["error"]["param"] == "max_token"
    assert [row["usage"]["completion_tokens"] for row in (rows[0], rows[2])] == [4, 1]
    assert ended == [1, 2, 0]


def test_signals_stop_a_row_a_batch_and_a_request(run: Run) -> None:
    reasons, refusal, live = run("""
      const one = new AbortController();
      const all = new AbortController();
      const texts = [];
      const rows = await engine.batch(
        [{ prompt: 'Count to a thousand.', max_tokens: 400, signal: one.signal },
         { prompt: 'Count to a million.', max_tokens: 400 }],
        {
          signal: all.signal,
          onText: (index) => { texts[index] = true; if (texts[0] && texts[1]) one.abort(); },
          onRow: () => all.abort(),
        },
      );
      const request = new AbortController();
      const refusal = engine.chat.completions
        .create({ messages: [{ role: 'user', content: 'Hi' }] }, { signal: request.signal })
        .catch((error) => error.name);
      request.abort();
      return [rows.map((row) => row.finish_reason), await refusal, (await engine.stats()).running];
    """)
    assert reasons == ["abort", "abort"]
    assert refusal == "AbortError"
    assert live == 0


def test_leaving_a_stream_or_aborting_by_its_id_stops_the_request(run: Run) -> None:
    live = run("""
      const body = { messages: [{ role: 'user', content: 'Count to a thousand.' }], stream: true };
      for await (const chunk of await engine.chat.completions.create(body)) {
        if (chunk.choices[0].delta.content) break;
      }
      const left = (await engine.stats()).running;
      for await (const chunk of await engine.chat.completions.create(body)) await engine.abort(chunk.id);
      return [left, (await engine.stats()).running];
    """)
    assert live == [0, 0]


def test_what_is_no_row_fails_alone(run: Run) -> None:
    results = run("return engine.batch([null, 5, { prompt: 'Hi', max_tokens: 1 }])")
    assert [result.get("error", {}).get("code") for result in results] == ["invalid_argument", "invalid_argument", None]


def test_leaving_a_stream_of_a_closed_engine_is_nobodys_error(run: Run) -> None:
    unhandled = run("""
      const { Pageloom } = await import('./pageloom.js');
      const unhandled = [];
      addEventListener('unhandledrejection', ({ reason }) => unhandled.push(String(reason)));
      const closing = await Pageloom.load({ model: 'built-in', store: false, num_blocks: 64 });
      const messages = [{ role: 'user', content: 'Hi' }];
      for await (const _ of await closing.chat.completions.create({ messages, stream: true })) {
        closing.close();
        break;
      }
      await new Promise((resolve) => setTimeout(resolve));
      return unhandled;
    """)
    assert unhandled == []


@pytest.mark.parametrize(("model", "message"), [("http://[", "is no URL"), ("nowhere/100%", "cannot read .*404")])
def test_a_model_that_no_url_names_is_refused_in_words(run: Run, model: str, message: str) -> None:
    error = run(f"""
      const {{ Pageloom }} = await import('./pageloom.js');
      return Pageloom.load({{ model: '{model}', store: false }}).catch(({{ code, message }}) => ({{ code, message }}));
    """)
    assert error["code"] in {"invalid_argument", "bad_model_file"}
    assert re.search(message, error["message"])


def test_a_snapshot_has_the_pool_and_what_is_in_it(run: Run) -> None:
    snapshot, stats = run("return [await engine.snapshot(), await engine.stats()];")
    assert snapshot["num_blocks"] == stats["num_blocks"] == 64
    assert len(snapshot["blocks"]) <= 64
    assert snapshot["block_size"] == 16


def test_what_is_wrong_with_a_request_is_an_error_with_openais_fields(run: Run) -> None:
    error = run("""
      return engine.chat.completions
        .create({ messages: [{ role: 'user', content: 'Hi' }], temperature: 9 })
        .catch((error) => ({ name: error.name, status: error.status, ...error.error }));
    """)
    assert error["name"] == "PageloomError"
    assert (error["status"], error["type"], error["param"]) == (400, "invalid_request_error", "temperature")
    assert "0 to 2" in error["message"]


def test_an_unknown_option_of_a_load_is_refused_by_name(run: Run) -> None:
    error = run("""
      const { Pageloom } = await import('./pageloom.js');
      return Pageloom.load({ model: 'built-in', store: false, num_block: 4 })
        .catch((error) => ({ code: error.code, message: error.message }));
    """)
    assert error["code"] == "invalid_argument"
    assert "num_block" in error["message"]
