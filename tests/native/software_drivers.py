"""The environments in which a command has one software driver and no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pageloom.backends.webgpu.native_drivers import browser_folders, find_swiftshader


def driver_manifest(name: str) -> Path | None:
    if name == "swiftshader":
        return find_swiftshader(browser_folders())
    return next(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"), None)


def environment_with(*names: str) -> dict[str, str]:
    """The environment for the first of the named drivers that is installed; skips the test where none is."""
    manifest = next(filter(None, map(driver_manifest, names)), None)
    if manifest is None:
        pytest.skip(f"{' and '.join(names)}: not installed")
    return {**os.environ, "VK_DRIVER_FILES": str(manifest)}
