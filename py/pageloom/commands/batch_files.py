"""What `pageloom tab` and `pageloom batch` share: their options, the prompts read, the rows written, what is said."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO, cast

from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import InvalidArgument
from pageloom.jobs import Job, RefusedJob, error_row, parse_job_lines

SAMPLING_OPTIONS: Mapping[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "seed": int,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "logprobs": int,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """The jobs of a prompts file: those to run, and the lines that are refused already."""

    jobs: list[Job]
    refused: list[RefusedJob]

    def __len__(self) -> int:
        return len(self.jobs) + len(self.refused)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="FILE", help="a GGUF file")
    parser.add_argument(
        "--prompts", required=True, metavar="FILE.jsonl", help="one JSON object a line; - reads standard input"
    )
    parser.add_argument(
        "--out", default="-", metavar="FILE.jsonl", help="where the result rows go; - (the default) is standard output"
    )
    parser.add_argument("--strict", action="store_true", help="stop before the first prompt where a line is refused")
    sampling = parser.add_argument_group("sampling, for lines that do not say otherwise")
    sampling.add_argument("--max-tokens", type=int, default=256, metavar="N", help="default: %(default)s")
    for name, kind in SAMPLING_OPTIONS.items():
        sampling.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N" if kind is int else "X")
    sampling.add_argument("--stop", action="append", metavar="TEXT", help="may be given several times")
    sampling.add_argument("--ignore-eos", action="store_true", default=None, help="go on past the model's own end")
    pool = parser.add_argument_group("the pool of KV pages")
    pool.add_argument("--num-blocks", type=int, metavar="N", help="pages in the pool; default: what fits the device")
    pool.add_argument("--block-size", type=int, metavar="N", help="tokens a page: a power of two, at least 16")


def read_batch(options: argparse.Namespace) -> Batch:
    """The jobs of `--prompts`. Raises `InvalidArgument` for a file that cannot be read, for sampling options out of
    their range, and with `--strict` for the first line that is no job."""
    if not options.model.is_file():
        raise InvalidArgument(f"there is no model file at {str(options.model)!r}", param="model")
    names = ("max_tokens", *SAMPLING_OPTIONS, "stop", "ignore_eos")
    defaults = {name: value for name in names if (value := getattr(options, name)) is not None}
    SamplingParams(**defaults)  # a wrong option is one message here, not an error in every row
    try:
        with _opened(options.prompts, "r", sys.stdin) as file:
            parsed = parse_job_lines(file, defaults, strict=options.strict)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the prompts of {options.prompts!r}: {error}", param="prompts") from error
    if not parsed:
        raise InvalidArgument(f"{options.prompts!r} holds no prompt", param="prompts")
    jobs = [entry for entry in parsed if isinstance(entry, Job)]
    return Batch(jobs, [entry for entry in parsed if isinstance(entry, RefusedJob)])


class RowWriter:
    """Writes rows to a JSON Lines file in the order of their `index`, each as soon as those before it are written."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._waiting: dict[int, Mapping[str, object]] = {}
        self._next = 0
        self.failed = 0

    def put(self, row: Mapping[str, Any]) -> None:
        """Take a row, in any order of rows; a second row of an index is passed over."""
        index: int = row["index"]
        if index < self._next or index in self._waiting:
            return
        self.failed += "error" in row
        self._waiting[index] = row
        while (ready := self._waiting.pop(self._next, None)) is not None:
            self._file.write(json.dumps(ready, ensure_ascii=False) + "\n")
            self._file.flush()
            self._next += 1


@contextmanager
def row_writer(options: argparse.Namespace, refused: Sequence[RefusedJob]) -> Iterator[RowWriter]:
    """A writer to `--out` that has the refused lines already. Raises `InvalidArgument` where it cannot be opened."""
    try:
        opened = _opened(options.out, "w", sys.stdout)
    except OSError as error:
        raise InvalidArgument(f"cannot write {options.out!r}: {error.strerror}", param="out") from error
    with opened as file:
        writer = RowWriter(file)
        for entry in refused:
            writer.put(error_row(entry.index, entry.error))
        yield writer


def _opened(name: str, mode: str, standard: TextIO) -> AbstractContextManager[TextIO]:
    """The named file, or for "-" the standard stream, which stays open."""
    return nullcontext(standard) if name == "-" else cast(TextIO, Path(name).open(mode, encoding="utf-8"))
