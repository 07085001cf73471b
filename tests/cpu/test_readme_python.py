"""The README's Python for the CPU runs as it stands."""

from __future__ import annotations

import subprocess
import sys

from kernels_kit import needs_kernels

from tests.readme import ROOT, blocks

pytestmark = needs_kernels


def test_the_readmes_python_for_the_cpu_decodes() -> None:
    (code,) = [block for block in blocks("python") if "CpuOperators" in block]
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("[1. 1. 1. 1.]") == 3
    assert "tier='flash" in ran.stdout
