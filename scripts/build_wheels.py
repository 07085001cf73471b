"""Put the wheels that the page installs into build/wheels/, with wheels.json: their names in the order to install them.

The project's own wheel is built anew each time, of the modules that a tab needs; the others are fetched once with pip
and kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from modulefinder import ModuleFinder
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "py"
WHEELS = ROOT / "build" / "wheels"
ELSEWHERE = ["pageloom.backends.cpu", "pageloom.backends.cuda", "pageloom.native_home", "pageloom.worker"]
"""What no tab can run, though code that it shares with other homes names it."""
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The same sources make the same bytes, whenever they are built."""
PYODIDE_PYTHON = "3.14"
MICROPIP = "micropip==0.11.1"
JINJA2 = "jinja2==3.1.6"
MARKUPSAFE = "markupsafe==3.0.4"


def main() -> None:
    WHEELS.mkdir(parents=True, exist_ok=True)
    micropip = fetched(MICROPIP, "download", "--python-version", PYODIDE_PYTHON, "--only-binary=:all:")
    jinja2 = fetched(JINJA2, "download", "--python-version", PYODIDE_PYTHON, "--only-binary=:all:")
    # Without a compiler MarkupSafe builds as pure Python, the only kind that runs under every Pyodide.
    markupsafe = fetched(MARKUPSAFE, "wheel", "--no-binary", "markupsafe", environment={"CC": "/bin/false"})
    project = built_project()
    manifest = {"micropip": micropip, "packages": [markupsafe, jinja2, project]}
    (WHEELS / "wheels.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"wheels: {micropip} {markupsafe} {jinja2} {project}")


def fetched(requirement: str, *pip_command: str, environment: dict[str, str] | None = None) -> str:
    """The file name of the requirement's pure wheel, taken by pip where it is not there yet."""
    name = f"{requirement.replace('==', '-')}-py3-none-any.whl"
    if not (WHEELS / name).is_file():
        command, *options = pip_command
        arguments = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", command, "--no-deps"]
        where = "--dest" if command == "download" else "--wheel-dir"
        subprocess.run(
            [*arguments, *options, where, str(WHEELS), requirement],
            check=True,
            env={**os.environ, **(environment or {})},
        )
    if not (WHEELS / name).is_file():
        sys.exit(f"pip made no {name} in {WHEELS}; remove that folder and try again")
    return name


def built_project() -> str:
    """The file name of the project's wheel, with only what can run in a tab."""
    for old in WHEELS.glob("pageloom-*.whl"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(WHEELS)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    wheel = next(WHEELS.glob("pageloom-*.whl"))
    keep_only(wheel, modules_of_tab())
    return wheel.name


def modules_of_tab() -> set[str]:
    """The files of all modules that the tab's code imports, from the root of the wheel."""
    finder = ModuleFinder(path=[str(SOURCES)], excludes=ELSEWHERE)
    for name in ("pageloom", *(f"pageloom.tab.{path.stem}" for path in (SOURCES / "pageloom/tab").glob("*.py"))):
        finder.import_hook(name)
    files = (Path(module.__file__) for module in finder.modules.values() if module.__file__)
    return {file.relative_to(SOURCES).as_posix() for file in files}


def keep_only(wheel: Path, modules: set[str]) -> None:
    """Leave other modules out of the wheel, and out of its list of files."""

    def is_kept(name: str) -> bool:
        return not name.endswith(".py") or name in modules

    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist() if is_kept(name)}
    record = next(name for name in contents if name.endswith(".dist-info/RECORD"))
    lines = contents[record].decode().splitlines(keepends=True)
    contents[record] = "".join(line for line in lines if is_kept(line.split(",")[0])).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, EARLIEST), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
