"""`pageloom chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from pageloom.commands.batch_files import add_device_options, add_sampling_options, sampling_fields
from pageloom.commands.native_model import add_backend_option, check_model_file, load_model
from pageloom.commands.page_files import DEFAULT_MODEL
from pageloom.engine.events import TokenEvent
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import CapacityExceeded
from pageloom.jobs import Message, parse_job
from pageloom.language_model import LanguageModel

PROMPT = "> "


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="A conversation, an answer to each line. Ctrl-C ends an answer, or at the prompt the conversation; "
        "/clear begins a new one. Where the input is no terminal, each of its lines is answered.",
    )
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, metavar="FILE", help="default: the built-in one")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    add_backend_option(parser)
    add_sampling_options(parser, "sampling")
    add_device_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    check_model_file(options.model)
    sampling = sampling_fields(options)
    SamplingParams(**sampling)
    with suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - gives `input` its history; Windows has none
    with asyncio.Runner() as runner:
        model = runner.run(load_model(options))
        try:
            converse(runner, model, options.system, sampling)
        finally:
            runner.run(model.close())
    return 0


def converse(runner: asyncio.Runner, model: LanguageModel, system: str | None, sampling: dict[str, Any]) -> None:
    """Answer each line of the input until it ends. The event loop runs only while the model answers."""
    beginning: list[Message] = [{"role": "system", "content": system}] if system else []
    messages = list(beginning)
    while (line := _next_line()) is not None:
        if line == "/clear":
            messages = list(beginning)
            continue
        messages.append({"role": "user", "content": line})
        said: list[str] = []
        try:
            runner.run(_answer(model, messages, sampling, said))
        except KeyboardInterrupt:
            pass  # what was said so far stays in the conversation
        except CapacityExceeded as error:
            messages.pop()
            print(f"pageloom: {error.message}; /clear begins a new conversation", file=sys.stderr)
            continue
        print()
        messages.append({"role": "assistant", "content": "".join(said)})


def _next_line() -> str | None:
    """The next line that says something; None at the end, or where Ctrl-C is pressed at the prompt."""
    while True:
        try:
            line = input(PROMPT if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                print()
            return None
        if line:
            return line


async def _answer(model: LanguageModel, messages: list[Message], sampling: dict[str, Any], said: list[str]) -> None:
    """Print the answer as it comes. `said` gets its pieces, so that they outlive an interruption."""
    is_terminal = sys.stdout.isatty()
    handle = model.start(parse_job(0, {"messages": messages}, sampling))
    try:
        async for event in handle:
            if isinstance(event, TokenEvent):
                said.append(event.text_delta)
                print(for_terminal(event.text_delta) if is_terminal else event.text_delta, end="", flush=True)
        await handle.result()
    finally:
        handle.abort()


def for_terminal(text: str) -> str:
    """`text` without control characters but for new lines and tabs: a terminal would do what they say."""
    return "".join("\ufffd" if unicodedata.category(char) == "Cc" and char not in "\n\t" else char for char in text)
