"""Cases as files beside the page: an index and one file a case. Needs numpy, which makes the cases.

`index.json` is `{"cases": [{"name", "operator", "file", "bytes"}]}`; `file` is an address from the index's own folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from pageloom.attention.cases.case import Case, Operator
from pageloom.attention.cases.matrix import all_cases
from pageloom.attention.vectors import write_vector

INDEX = "index.json"


def write_vectors(
    cases: Iterable[Case], folder: Path, on_written: Callable[[int], None] = lambda written: None
) -> list[str]:
    """Write the cases' files and their index into `folder`; returns the names. `on_written` hears of each file."""
    return _write(((case.name, case.operator, write_vector(case.vector())) for case in cases), folder, on_written)


def write_published(operator: Operator, folder: Path, *, most_bytes: int, most_bytes_of_one: int) -> list[str]:
    """Write what a page publishes: of the quick cases those that `choose` picks."""
    files: list[tuple[str, Operator, bytes]] = []
    for case in all_cases(operator=operator, quick=True):
        data = write_vector(case.vector())
        if len(data) <= most_bytes_of_one:
            files.append((case.name, case.operator, data))
    names = choose([(name, len(data)) for name, _, data in files], most_bytes)
    return _write((file for file in files if file[0] in names), folder)


def choose(sizes: Iterable[tuple[str, int]], most_bytes: int) -> set[str]:
    """Of named files the smallest of each feature, and then the smallest others, as many as `most_bytes` holds."""
    by_size = sorted(sizes, key=lambda file: (file[1], file[0]))
    firsts: dict[str, tuple[str, int]] = {}
    for name, size in by_size:
        firsts.setdefault(name.split("/")[1], (name, size))
    chosen: set[str] = set()
    for name, size in [*firsts.values(), *by_size]:
        if name not in chosen and size <= most_bytes:
            most_bytes -= size
            chosen.add(name)
    return chosen


def _write(
    files: Iterable[tuple[str, Operator, bytes]], folder: Path, on_written: Callable[[int], None] = lambda written: None
) -> list[str]:
    entries = []
    for name, operator, data in files:
        path = folder / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        entries.append(
            {"name": name, "operator": operator, "file": path.relative_to(folder).as_posix(), "bytes": len(data)}
        )
        on_written(len(entries))
    (folder / INDEX).write_text(json.dumps({"cases": entries}, indent=1) + "\n")
    return [str(entry["name"]) for entry in entries]
