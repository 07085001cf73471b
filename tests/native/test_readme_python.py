"""The README's Python runs as it stands."""

import subprocess
import sys

from tests.native.software_drivers import environment_with
from tests.readme import ROOT, blocks


def test_the_readmes_python_answers_both_prompts() -> None:
    (code,) = [block for block in blocks("python") if "pageloom.load" in block]
    environment = environment_with("lavapipe", "swiftshader")
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert "grav" in ran.stdout.lower()
    assert len(ran.stdout.split()) > 10
