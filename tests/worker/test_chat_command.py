"""`pageloom chat` in a terminal: it streams, remembers, and Ctrl-C stops the answer alone."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from pageloom.cli import main
from pageloom.commands.chat import for_terminal
from tests.native.software_drivers import environment_with
from tests.worker.running_worker import MODEL, RunningWorker

PROMPT = "\r\n> "


class Terminal:
    """A terminal in which the command runs."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self._seen = b""

    def read_until(self, text: str) -> str:
        """What appears before `text`, which is then taken too."""
        while text.encode() not in self._seen:
            self._seen += self._more()
        before, _, self._seen = self._seen.partition(text.encode())
        return before.decode().replace("\r\n", "\n")

    def type(self, line: str) -> None:
        """A line and the return key; the terminal shows it."""
        os.write(self._screen, line.encode() + b"\n")
        self.read_until(line + "\r\n")

    def wait_for_some_answer(self) -> None:
        while not self._seen:
            self._seen += self._more()

    def interrupt_until_it_ends(self) -> int:
        """Its exit status. A signal between the prompt and the read behind it is only seen with the next one."""
        for _ in range(12):
            self.process.send_signal(signal.SIGINT)
            try:
                return self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError("it does not end")

    def _more(self) -> bytes:
        try:
            return os.read(self._screen, 4096)
        except OSError as error:  # what Linux says once nobody has the other end
            raise AssertionError(f"the command ended after {self._seen!r}") from error


@pytest.fixture
def terminal(worker: RunningWorker, model_path: Path) -> Iterator[Terminal]:
    screen, inner = pty.openpty()
    # Whoever presses Ctrl-C comes before the end of a quick answer.
    command = ["nice", "-n", "5", sys.executable, "-m", "pageloom", "chat"]
    command += ["--model", str(model_path), "--num-blocks", "64"]
    command += ["--backend", worker.backend]
    process = subprocess.Popen(
        [*command, "--temperature", "0", "--max-tokens", "200"],
        stdin=inner,
        stdout=inner,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**environment_with("swiftshader", "lavapipe"), "TERM": "dumb"},
    )
    os.close(inner)
    terminal = Terminal(process, screen)
    try:
        terminal.read_until("> ")
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def answer(client: OpenAI, *conversation: str) -> str:
    """What the model says next, as the worker has it."""
    roles = ["user", "assistant"] * len(conversation)
    messages: Any = [{"role": role, "content": text} for role, text in zip(roles, conversation, strict=False)]
    choice = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=200).choices[0]
    return choice.message.content or ""


def test_a_conversation_in_a_terminal(terminal: Terminal, client: OpenAI) -> None:
    first = answer(client, "hello")
    second = answer(client, "hello", first, "world")
    terminal.type("hello")
    assert terminal.read_until(PROMPT) == for_terminal(first)
    terminal.type("world")
    assert terminal.read_until(PROMPT) == for_terminal(second), "it remembers what was said"
    terminal.type("/clear")
    terminal.read_until("> ")
    terminal.type("hello")
    assert terminal.read_until(PROMPT) == for_terminal(first), "it has forgotten"
    for _ in range(2):
        terminal.type("/clear")
        terminal.read_until("> ")
        terminal.type("hello")
        terminal.wait_for_some_answer()
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until(PROMPT)
        assert terminal.process.poll() is None, "Ctrl-C ends the answer alone"
    assert terminal.interrupt_until_it_ends() == 0, "and at the prompt the conversation"


def test_what_would_command_the_terminal_is_not_shown() -> None:
    assert for_terminal("a\x1b[2Jb\tc\nd\x07\x9b1m é 👩‍🚀") == "a\ufffd[2Jb\tc\nd\ufffd\ufffd1m é 👩‍🚀"


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--model", "no.gguf"], "no model file at 'no.gguf'"), (["--temperature", "9"], "temperature")],
)
def test_what_cannot_be_is_one_line(
    model_path: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--model", str(model_path), *options]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
