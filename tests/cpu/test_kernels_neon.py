"""The NEON kernels, cross-compiled and run on an emulated CPU where those tools are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "py" / "pageloom-cpu" / "src"


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"no {COMPILER}; Debian has it in g++-aarch64-linux-gnu")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"no {EMULATOR}; Debian has it in qemu-user-static")
def test_neon_kernels_agree_with_the_scalar_ones(tmp_path: Path) -> None:
    program = tmp_path / "neon_check"
    levels = [SOURCES / "levels" / f"{name}.cpp" for name in ("scalar", "neon")]
    subprocess.run(
        [COMPILER, "-std=c++17", "-O1", "-static", f"-I{SOURCES}", HERE / "neon_check.cpp", *levels, "-o", program],
        check=True,
    )
    result = subprocess.run([EMULATOR, program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
