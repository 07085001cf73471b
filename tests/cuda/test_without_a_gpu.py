"""What a machine without PyTorch, or without a GPU, is told."""

from __future__ import annotations

import pytest

from pageloom import cli
from pageloom.backends.cuda import CudaOperators
from pageloom.backends.cuda.availability import why_unavailable
from pageloom.commands.info import cuda_finding
from pageloom.errors import NotSupported

WHY = why_unavailable()
pytestmark = pytest.mark.skipif(not WHY, reason="there is a GPU")


def test_making_operators_says_why_cuda_is_off() -> None:
    with pytest.raises(NotSupported, match="CUDA is off: ") as raised:
        CudaOperators("cuda" if "PyTorch is not installed" not in WHY else None)
    assert WHY in raised.value.message


def test_info_says_why_cuda_is_off() -> None:
    finding = cuda_finding()
    assert not finding.available
    assert finding.summary == WHY


@pytest.mark.parametrize("command", [["check", "--quick"], ["bench"]])
def test_commands_end_with_the_reason(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numpy")
    assert cli.main([*command, "--backend", "cuda"]) == 3
    assert WHY in capsys.readouterr().err
