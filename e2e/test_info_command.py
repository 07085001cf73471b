"""`pageloom info` sees what the other tests use."""

from __future__ import annotations

import json
import subprocess
import sys


def test_info_finds_the_browser_its_adapter_the_page_and_the_model() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pageloom", "info", "--json"], capture_output=True, text=True, check=True
    )
    found = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert all(found[name]["available"] for name in ("browser", "WebGPU in the browser", "page", "model")), found
    adapter = found["WebGPU in the browser"]
    assert adapter["limits"]["maxStorageBufferBindingSize"] >= 128 * 2**20
    assert any("software adapter" in note for note in adapter["notes"]) == ("swiftshader" in adapter["summary"])


def test_a_browser_that_is_not_there_is_a_finding_and_not_a_failure() -> None:
    command = [sys.executable, "-m", "pageloom", "info", "--json", "--browser", "no-such-browser"]
    found = {finding["name"]: finding for finding in json.loads(subprocess.check_output(command))}
    assert not found["browser"]["available"]
    assert "no-such-browser is not a program" in found["browser"]["summary"]
