"""Put the wheels that the page installs into build/wheels/, with wheels.json: their names in the order to install them.

The project's own wheel is built anew each time; the others are fetched once with pip and kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheels"
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
    for old in WHEELS.glob("pageloom-*.whl"):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(WHEELS)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    return next(WHEELS.glob("pageloom-*.whl")).name


if __name__ == "__main__":
    main()
