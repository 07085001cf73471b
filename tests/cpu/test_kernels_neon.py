"""The NEON kernels, cross-compiled and run on an emulated CPU where those tools are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "py" / "pageloom-cpu" / "src"


PROGRAMS = {
    "level_check.cpp": ["levels/scalar.cpp", "levels/neon.cpp"],
    "neon_layers_check.cpp": ["linear/levels/scalar.cpp", "linear/levels/neon.cpp", "linear/packing.cpp"],
}


@pytest.mark.skipif(not shutil.which(COMPILER), reason=f"no {COMPILER}; Debian has it in g++-aarch64-linux-gnu")
@pytest.mark.skipif(not shutil.which(EMULATOR), reason=f"no {EMULATOR}; Debian has it in qemu-user-static")
@pytest.mark.parametrize("check", PROGRAMS)
def test_neon_kernels_agree_with_the_scalar_ones(tmp_path: Path, check: str) -> None:
    program = tmp_path / "check"
    sources = [SOURCES / name for name in PROGRAMS[check]]
    flags = ["-std=c++17", "-O1", "-static", "-DPAGELOOM_LEVEL=neon", f"-I{SOURCES}"]
    subprocess.run([COMPILER, *flags, HERE / check, *sources, "-o", program], check=True)
    result = subprocess.run([EMULATOR, program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
