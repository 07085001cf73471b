"""Which browser the commands and the browser tests use, and the flags that give it WebGPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pageloom.errors import NotSupported

Gpu = Literal["auto", "software", "hardware"]

_NAMES = ("chromium", "google-chrome", "google-chrome-stable")
_COMMON_FLAGS = ("--enable-unsafe-webgpu", "--disable-background-networking", "--no-first-run")
_SOFTWARE_FLAGS = ("--use-webgpu-adapter=swiftshader",)
_HARDWARE_FLAGS = ("--use-angle=vulkan", "--enable-features=Vulkan", "--disable-vulkan-surface")


def find_browser(explicit: str | None = None) -> str:
    """The path of a Chromium or Chrome: `explicit`, else `PAGELOOM_BROWSER`, else an installed one, else Playwright's.

    Raises `NotSupported` where there is none, or where the one named is not an executable file.
    """
    named = explicit or os.environ.get("PAGELOOM_BROWSER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise NotSupported(f"{named} is not a program that can be run; name a Chromium or Chrome", param="browser")
        return found
    browser = next(_installed(), None)
    if browser is None:
        raise NotSupported(
            "no Chromium or Chrome found; run `make setup`, or `playwright install chromium`, or name one in "
            "PAGELOOM_BROWSER",
            param="browser",
        )
    return browser


def browser_flags(gpu: Gpu) -> list[str]:
    """The flags that give the browser's WebGPU a hardware adapter, or the software one (SwiftShader).

    "auto" is hardware where the machine shows a graphics device. Chromium may still fall back to software there.
    """
    hardware = gpu == "hardware" or (gpu == "auto" and has_graphics_device())
    return [*_COMMON_FLAGS, *(_HARDWARE_FLAGS if hardware else _SOFTWARE_FLAGS)]


def has_graphics_device() -> bool:
    """Whether the kernel offers a device that a GPU driver could drive."""
    return any(Path("/dev/dri").glob("renderD*")) or Path("/dev/nvidia0").exists()


def _installed() -> Iterator[str]:
    for name in _NAMES:
        path = shutil.which(name)
        # A snap is confined to its own folders: it can open neither the profile nor the files that are given to it.
        if path and not path.startswith("/snap/"):
            yield path
    browsers = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    yield from sorted(map(str, browsers.glob("chromium-*/chrome-linux*/chrome")), reverse=True)
