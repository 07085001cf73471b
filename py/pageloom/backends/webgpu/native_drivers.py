"""Finding a Vulkan driver for the native home on a machine without a hardware one.

Chromium and Chrome ship SwiftShader, a Vulkan driver that runs on the CPU. The Vulkan loader does not know of it, so
its manifest is handed over in `VK_ADD_DRIVER_FILES`, next to whatever drivers the system has.

And which of Dawn's features are asked for: products of matrices are an experimental one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MANIFEST = "vk_swiftshader_icd.json"
EXPERIMENTAL_VARIABLE = "PAGELOOM_WEBGPU_EXPERIMENTAL"
BROWSER_FOLDERS = (
    "/usr/lib/chromium",
    "/usr/lib/chromium-browser",
    "/usr/lib64/chromium-browser",
    "/opt/google/chrome",
    "/opt/google/chrome-unstable",
    "/opt/chromium.org/chromium",
    "/snap/chromium/current/usr/lib/chromium-browser",
)


def browser_folders() -> list[Path]:
    """Where browsers with SwiftShader are installed: by the system, then by Playwright (newest first)."""
    playwright = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache" / "ms-playwright"))
    downloaded = sorted(playwright.glob("chromium*/*/"), reverse=True)
    return [*map(Path, BROWSER_FOLDERS), *downloaded]


def find_swiftshader(folders: Iterable[Path]) -> Path | None:
    """The first SwiftShader manifest in `folders`."""
    return next((folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()), None)


def prepare_environment() -> None:
    """Offer SwiftShader to the Vulkan loader; call before the first adapter is asked for.

    Does nothing where the user has already chosen drivers, and on systems where Dawn does not use Vulkan.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    if os.environ.keys() & {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"}:
        return
    manifest = find_swiftshader(browser_folders())
    if manifest is not None:
        os.environ["VK_ADD_DRIVER_FILES"] = str(manifest)


def allow_experimental_features() -> None:
    """Have Dawn offer its experimental features; call before the first adapter is asked for.

    Dawn holds them back from web pages, whose shaders are anybody's; those that run here are the project's own. Does
    nothing where the variable `PAGELOOM_WEBGPU_EXPERIMENTAL` is 0, and where the process has used Dawn before.
    """
    from wgpudawn.backends.dawn.extras import set_instance_extras  # noqa: PLC0415 - optional

    if os.environ.get(EXPERIMENTAL_VARIABLE) != "0":
        with suppress(RuntimeError):
            set_instance_extras(enable_toggles=["allow_unsafe_apis"])
