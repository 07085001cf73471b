"""Put the conformance cases that the page publishes into build/vectors/: inputs, and what must come of them by the
float64 reference. Made anew where the attention contracts or their cases have changed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from pageloom.conformance.vector_files import write_published

ROOT = Path(__file__).resolve().parent.parent
VECTORS = ROOT / "build" / "vectors"
STAMP = VECTORS / ".stamp"
SOURCES = (ROOT / "py" / "pageloom" / "attention", ROOT / "py" / "pageloom" / "conformance", Path(__file__))
MOST_BYTES = 14_000_000
MOST_BYTES_OF_ONE = 1_000_000


def main() -> None:
    wanted = digest()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        print("vectors: ready")
        return
    shutil.rmtree(VECTORS, ignore_errors=True)
    VECTORS.mkdir(parents=True)
    names = write_published("paged_attention", VECTORS, most_bytes=MOST_BYTES, most_bytes_of_one=MOST_BYTES_OF_ONE)
    STAMP.write_text(wanted)
    print(f"vectors: {len(names)} cases")


def digest() -> str:
    state = hashlib.sha256()
    for source in SOURCES:
        for path in [source] if source.is_file() else sorted(source.rglob("*.py")):
            state.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return state.hexdigest()


if __name__ == "__main__":
    main()
