"""What `docs/cuda.md` shows runs as it stands."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from pageloom.cli import build_parser
from tests.readme import ROOT

TEXT = (ROOT / "docs/cuda.md").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_takes_the_options_shown(command: str) -> None:
    assert build_parser().parse_args(shlex.split(command)[1:]).run


def test_the_call_of_an_operator_gives_its_output_and_its_tier(device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(code.replace("CudaOperators()", f"CudaOperators({device.type!r})"), {})
    assert capsys.readouterr().out == "(1, 8, 5, 64) triton\n"
