"""What the interpreter does not show: that Triton compiles the kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.readme import ROOT

pytest.importorskip("triton", reason="Triton is not installed: pip install 'pageloom[cuda]'")

CASES = (
    "paged/float8e4m3fn/per_tensor/decode",
    "paged/mixed/int8_per_channel_int4_per_tensor",
    "paged/int8/per_channel/decode",
    "paged/rotary/half_packed/decode",
    "onnx/half/float16/external_groups/14_2",
)


def test_kernels_compile_for_hopper_on_a_machine_without_a_gpu() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cuda.compile_for_hopper", *CASES],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": "py"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= len(CASES)
