"""`pageloom serve` and `pageloom completion` as commands: what is refused before a model is loaded, in which words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pageloom.backends.cuda.availability import why_unavailable
from pageloom.cli import build_parser, main
from pageloom.commands.serve import read_token, usual_state
from pageloom.errors import InvalidArgument
from tests.worker.running_worker import RunningWorker


def serve(model: Path, folder: Path, *options: str) -> int:
    return main(["serve", "--model", str(model), "--port", "0", "--state", str(folder / "state.sqlite3"), *options])


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--model", "no.gguf"], 2, "no model file at 'no.gguf'"),
        (["--port", "65536"], 2, "the port is 65536"),
        (["--queue", "-1"], 2, "queue is -1"),
        (["--timeout", "-1"], 2, "request_seconds is -1.0"),
        (["--allow-origin", "*"], 2, "'*' is no origin"),
        (["--allow-origin", "http://localhost:1/page"], 2, "without a path"),
        (["--allow-origin", "localhost:1"], 2, "is no origin"),
        (["--token-file", "no-such-file"], 2, "cannot read the token of 'no-such-file'"),
        (["--state", "/dev/null/state"], 2, "the state file '/dev/null/state' cannot be used"),
        (["--state", __file__], 2, "file is not a database"),
    ],
)
def test_what_cannot_be_is_one_line_and_its_exit_code(
    model_path: Path, tmp_path: Path, options: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(model_path, tmp_path, *options) == code
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_file_that_is_no_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(20))
    assert serve(tmp_path / "bad.gguf", tmp_path) == 2
    assert "pageloom: " in capsys.readouterr().err


def test_a_machine_without_an_adapter_is_told_so(model_path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pageloom", "serve", "--model", str(model_path), "--port", "0"]
    ran = subprocess.run(
        [*command, "--state", str(tmp_path / "state.sqlite3")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VK_DRIVER_FILES": "/dev/null"},
    )
    assert ran.returncode == 3
    assert "adapter" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_so(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(model_path, tmp_path, "--backend", "cuda") == 3
    assert capsys.readouterr().err.splitlines()[-1] == f"pageloom: CUDA is off: {why_unavailable()}"


def test_a_port_in_use_is_said_before_the_model_is_loaded(
    model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert serve(model_path, tmp_path, "--port", port) == 3
    said = capsys.readouterr().err
    assert f"cannot listen on port {port}: Address already in use; choose another" in said
    assert "Compiling" not in said


def test_a_second_worker_with_the_same_state_is_refused(
    worker: RunningWorker, model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(model_path, worker.log.parent) == 2
    assert "another worker has it open; name another with --state" in capsys.readouterr().err


def test_an_empty_token_is_no_token_but_a_mistake(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert serve(model_path, tmp_path, "--token-file", str(tmp_path / "token")) == 2


def test_the_token_comes_from_its_file_or_else_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGELOOM_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("PAGELOOM_TOKEN", "from-the-environment")
    assert read_token(None) == "from-the-environment"
    (tmp_path / "token").write_text("from-a-file\n")
    assert read_token(tmp_path / "token") == "from-a-file"
    (tmp_path / "token").write_bytes(b"\xff")
    with pytest.raises(InvalidArgument):
        read_token(tmp_path / "token")


def test_the_state_is_in_the_users_folder_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert usual_state() == Path("/elsewhere/pageloom/worker.sqlite3")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert usual_state() == Path.home() / ".local/state/pageloom/worker.sqlite3"


def test_without_its_packages_it_says_what_to_install(model_path: Path) -> None:
    hidden = "import sys; sys.modules['starlette'] = sys.modules['shtab'] = None; from pageloom.cli import main; "
    for command, package in (("serve", "pageloom[worker]"), ("completion", "pageloom[worker]")):
        arguments = ["serve", "--model", str(model_path)] if command == "serve" else ["completion", "bash"]
        ran = subprocess.run(
            [sys.executable, "-c", f"{hidden}sys.exit(main({arguments!r}))"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 3
        assert f"pip install '{package}'" in ran.stderr


def test_bash_completes_commands_and_their_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    asking = 'source "$0"; COMP_WORDS=(pageloom {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); '
    asking += '_shtab_pageloom; echo "${{COMPREPLY[@]}}"'

    def completed(words: str) -> list[str]:
        ran = subprocess.run(
            ["bash", "-c", asking.format(words=words), script], capture_output=True, text=True, check=True
        )
        return ran.stdout.split()

    assert completed("ser") == ["serve"]
    assert completed("serve --allow") == ["--allow-origin"]
    assert completed("batch --gpu ha") == ["hardware"]


@pytest.mark.parametrize("command", ["serve", "chat", "batch", "check", "bench", "info", "tab", "demo", "completion"])
def test_every_command_says_what_it_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: pageloom {command}" in capsys.readouterr().out
