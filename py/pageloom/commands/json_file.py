"""The file that `--json` names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pageloom.errors import InvalidArgument


@contextmanager
def json_file(path: Path | None) -> Iterator[Callable[[object], None]]:
    """What writes one object to `path`, or nowhere without a path.

    The file is opened at once: one that cannot be written is refused (`InvalidArgument`) before the work, not after.
    Where the work fails, what the file held before is still there.
    """
    if path is None:
        yield lambda content: None
        return
    existed = path.exists()
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot write {str(path)!r}: {error.strerror}", param="json") from error

    def write(content: object) -> None:
        text = json.dumps(content, indent=1, allow_nan=False)
        file.truncate(0)
        print(text, file=file)

    try:
        with file:
            yield write
    except BaseException:
        if not existed:
            path.unlink()
        raise
