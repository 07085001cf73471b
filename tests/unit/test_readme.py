"""The README's commands exist, take the options shown, and each is run by a test; what it links to is there.

Its Python block is run by `tests/native/test_readme_python.py`, its JavaScript by `e2e/test_readme_javascript.py`.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from pageloom.cli import build_parser
from pageloom.jobs import Job, parse_job_lines
from tests.readme import ROOT, TEXT, commands

RUN_BY = {
    "make demo": "tests/unit/test_demo_command.py",
    "make test": ".ci/run",
    "make test-unit": "Makefile",
    "make lint": ".ci/run",
    "make bench": "Makefile",
    "pageloom tab": "e2e/test_tab_command.py",
    "pageloom batch": "tests/native/test_batch_command.py",
    "pageloom info": "e2e/test_info_command.py",
    "pageloom serve": "tests/worker/running_worker.py",
    "pageloom chat": "tests/worker/test_chat_command.py",
    "pageloom check": "tests/native/test_check_command.py",
    "pageloom bench": "tests/unit/test_bench_command.py",
}
"""Where a command is run for real; the shell's own (`source`, `echo`) are run here, `curl` in
`tests/worker/test_documents.py`."""


def starting_with(word: str) -> list[str]:
    return [command for command in commands() if shlex.split(command)[0] == word]


def test_every_command_is_run_somewhere():
    words = {" ".join(shlex.split(command)[:2]) for command in commands()}
    assert {command for command in words if not command.startswith(("source", "echo", "curl"))} == set(RUN_BY)
    for command, place in RUN_BY.items():
        assert command.split()[1] in (ROOT / place).read_text(), f"{command} is not in {place}"


@pytest.mark.parametrize("command", starting_with("make"))
def test_the_makefile_has_each_target(command: str):
    subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", starting_with("pageloom"))
def test_the_command_line_takes_the_options_shown(command: str):
    assert build_parser().parse_args(shlex.split(command)[1:]).run


def test_the_prompts_file_that_it_writes_is_one_of_jobs(tmp_path: Path):
    for command in starting_with("echo"):
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    with (tmp_path / "prompts.jsonl").open() as file:
        plain, raw = parse_job_lines(file)
    assert isinstance(plain, Job)
    assert isinstance(raw, Job)
    assert (plain.raw, raw.raw, raw.sampling.max_tokens) == (False, True, 8)


def test_what_it_links_to_is_there():
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", TEXT) if not target.startswith("https:")]
    named = re.findall(r"`((?:tests|bench|docs)/[\w./-]*)`", TEXT)
    assert [target for target in [*targets, *named] if not (ROOT / target).exists()] == []
