"""What the README and `docs/worker.md` show gets answers from a worker."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.readme import ROOT, commands
from tests.worker.running_worker import MODEL, RunningWorker

COMMANDS = [command for command in commands() if command.startswith("curl ")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_curl_gets_an_answer(worker: RunningWorker, command: str) -> None:
    here = command.replace("127.0.0.1:8643", f"127.0.0.1:{worker.port}").replace("SmolLM2-135M-Instruct.Q4_1", MODEL)
    ran = subprocess.run([*shlex.split(here), "--silent"], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["choices"][0]["text"]


def test_the_readme_shows_the_usual_port_and_the_default_model() -> None:
    assert COMMANDS
    assert all("127.0.0.1:8643/" in command and "SmolLM2-135M-Instruct.Q4_1" in command for command in COMMANDS)


def test_the_call_of_an_operator_in_the_documents_gives_what_it_must(worker: RunningWorker) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/worker.md").read_text(), re.MULTILINE | re.DOTALL)
    here = code.replace("127.0.0.1:8643", f"127.0.0.1:{worker.port}")
    ran = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "[0. 0. 1. 1. 1. 0. 0. 0.]", ran.stderr
