"""What `pageloom bench` says as it measures: a table for people, or with `--lines` JSON for each shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from pageloom.errors import InvalidArgument

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BenchOutput:
    """On standard output, at once."""

    as_json: bool

    def say(self, line: str) -> None:
        """A line for people."""
        if not self.as_json:
            print(line, flush=True)

    def tell(self, rows: Sequence[Mapping[str, Any]], total: int) -> None:
        """The measurements of one of `total` shapes, for programs."""
        self._tell({"rows": rows, "total": total})

    def tell_result(self, result: Mapping[str, Any]) -> None:
        """All measurements, for programs."""
        self._tell({"result": result})

    def _tell(self, told: Mapping[str, Any]) -> None:
        if self.as_json:
            print(json.dumps(told, allow_nan=False), flush=True)


def choose_shapes(shapes: Iterable[T], pattern: str, name: Callable[[T], str] = str) -> list[T]:
    """Those whose names match `pattern`, as in a shell. Raises `InvalidArgument` where none does."""
    every = list(shapes)
    chosen = [shape for shape in every if fnmatchcase(name(shape), pattern)]
    if not chosen:
        names = ", ".join(repr(name(shape)) for shape in every[:3])
        raise InvalidArgument(f"no shape matches {pattern!r}; there are {len(every)}, such as {names}", param="shape")
    return chosen
