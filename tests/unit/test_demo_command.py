"""`pageloom demo` serves until it is stopped."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    for name in ("index.html", "pageloom.js", "small.gguf"):
        (tmp_path / name).write_text(name)
    command = [sys.executable, "-m", "pageloom", "demo", "--page", tmp_path, "--model", tmp_path / "small.gguf"]
    # Without a display, as on a server.
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        yield running
        running.kill()


def test_a_machine_without_a_display_is_told_the_address_and_served_until_ctrl_c(demo: subprocess.Popen[str]):
    assert demo.stdout is not None
    url = demo.stdout.readline().split()[3]
    assert "no display" in demo.stdout.readline()
    assert urllib.request.urlopen(url, timeout=10).read() == b"index.html"
    model = urllib.request.urlopen(f"{url}model/SmolLM2-135M-Instruct.Q4_1.gguf", timeout=10)
    assert model.read() == b"small.gguf"
    demo.send_signal(signal.SIGINT)
    assert demo.wait(timeout=10) == 0
    assert demo.stdout.read().strip() == "Stopped."
