"""What `docs/cpu.md` shows runs as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from kernels_kit import needs_kernels

from pageloom.cli import build_parser
from tests.readme import ROOT

TEXT = (ROOT / "docs/cpu.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_takes_the_options_shown(command: str) -> None:
    assert build_parser().parse_args(shlex.split(command)[1:]).run


@needs_kernels
def test_the_python_shown_decodes() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("[1. 1. 1. 1.]") == 3
    assert "tier='flash" in ran.stdout
