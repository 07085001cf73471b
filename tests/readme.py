"""The fenced blocks of the README."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The lines of the sh blocks without their comments."""
    return [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
