"""What `pageloom tab` and `pageloom batch` share: their options, the prompts read, the rows written, what is said."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Literal, TextIO, cast, get_args

from pageloom.engine.runner_settings import KvDtype
from pageloom.engine.sampling_params import SamplingParams
from pageloom.errors import InvalidArgument
from pageloom.jobs import Job, RefusedJob, parse_job_lines

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
PREFERENCES: Mapping[str, Literal["gpu", "software"] | None] = {
    "auto": None,
    "software": "software",
    "hardware": "gpu",
}
"""What `--gpu` says, as the engine's `prefer`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, type=Path, metavar="FILE", help="a GGUF file")
    parser.add_argument(
        "--prompts", required=True, metavar="FILE.jsonl", help="one JSON object a line; - reads standard input"
    )
    parser.add_argument(
        "--out", default="-", metavar="FILE.jsonl", help="where the result rows go; - (the default) is standard output"
    )
    parser.add_argument("--strict", action="store_true", help="stop before the first prompt where a line is refused")
    add_sampling_options(parser, "sampling, for lines that do not say otherwise")
    add_device_options(parser)


def add_sampling_options(parser: argparse.ArgumentParser, heading: str) -> None:
    sampling = parser.add_argument_group(heading)
    sampling.add_argument("--max-tokens", type=int, default=256, metavar="N", help="default: %(default)s")
    for name, kind in SAMPLING_OPTIONS.items():
        sampling.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N" if kind is int else "X")
    sampling.add_argument("--stop", action="append", metavar="TEXT", help="may be given several times")
    sampling.add_argument("--ignore-eos", action="store_true", default=None, help="go on past the model's own end")


def add_device_options(parser: argparse.ArgumentParser) -> None:
    device = parser.add_argument_group("the device and its pool of KV pages")
    device.add_argument("--gpu", choices=PREFERENCES, default="auto", help="the kind of adapter; default: %(default)s")
    device.add_argument("--num-blocks", type=int, metavar="N", help="pages in the pool; default: what fits the device")
    device.add_argument("--block-size", type=int, metavar="N", help="tokens a page: a power of two, at least 16")
    device.add_argument("--kv-dtype", choices=get_args(KvDtype), help="what the pages store; default: float16")


def pool_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What `add_device_options` were given, as fields of `RunnerSettings`."""
    given = {
        "prefer": PREFERENCES[options.gpu],
        "num_blocks": options.num_blocks,
        "block_size": options.block_size,
        "kv_dtype": options.kv_dtype,
    }
    return {name: value for name, value in given.items() if value is not None}


def read_jobs(options: argparse.Namespace) -> list[Job | RefusedJob]:
    """The jobs of `--prompts`, in order.

    Raises `InvalidArgument` for a file that cannot be read or that `--out` would overwrite, for sampling options out
    of their range, and with `--strict` for the first line that is no job.
    """
    if not options.model.is_file():
        raise InvalidArgument(f"there is no model file at {str(options.model)!r}", param="model")
    for option, given in (("--prompts", options.prompts), ("--model", options.model)):
        if _is_same_file(options.out, given):
            raise InvalidArgument(f"--out and {option} are the same file, {options.out!r}; name another", param="out")
    defaults = sampling_fields(options)
    SamplingParams(**defaults)  # a wrong option is one message here, not an error in every row
    try:
        with _opened(options.prompts, "r", sys.stdin) as file:
            parsed = parse_job_lines(file, defaults, strict=options.strict)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the prompts of {options.prompts!r}: {error}", param="prompts") from error
    if not parsed:
        raise InvalidArgument(f"{options.prompts!r} holds no prompt", param="prompts")
    return parsed


def sampling_fields(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `SamplingParams` that were given."""
    names = ("max_tokens", *SAMPLING_OPTIONS, "stop", "ignore_eos")
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _is_same_file(out: str, given: str | Path) -> bool:
    """Whether two names lead to one file; two names of one terminal or pipe do not count."""
    return Path(out).is_file() and Path(given).is_file() and Path(out).samefile(given)


class RowWriter:
    """Writes rows to a JSON Lines file in the order of their `index`, each as soon as those before it are written."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._waiting: dict[int, Mapping[str, object]] = {}
        self._next = 0
        self.failed = 0

    def put(self, row: Mapping[str, Any]) -> None:
        """Take a row, in any order of rows; a second row of an index is passed over.

        Raises `InvalidArgument` where the file takes no more (a full disk, a pipe that nobody reads).
        """
        index: int = row["index"]
        if index < self._next or index in self._waiting:
            return
        self.failed += "error" in row
        self._waiting[index] = row
        while (ready := self._waiting.pop(self._next, None)) is not None:
            self._write(json.dumps(ready, ensure_ascii=False) + "\n")
            self._next += 1

    def _write(self, line: str) -> None:
        try:
            # Half of a surrogate pair, which only a refused line can hold, becomes JSON's escape for it.
            self._file.write(line.encode(errors="backslashreplace").decode())
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()  # now, since it would fail once more wherever it is closed
            raise InvalidArgument(f"cannot write the rows: {error.strerror}", param="out") from error


@contextmanager
def row_writer(options: argparse.Namespace) -> Iterator[RowWriter]:
    """A writer to `--out`. Raises `InvalidArgument` where it cannot be opened."""
    try:
        opened = _opened(options.out, "w", sys.stdout)
    except OSError as error:
        raise InvalidArgument(f"cannot write {options.out!r}: {error.strerror}", param="out") from error
    with opened as file:
        yield RowWriter(file)


def _opened(name: str, mode: str, standard: TextIO) -> AbstractContextManager[TextIO]:
    """The named file, or for "-" the standard stream, which stays open."""
    return nullcontext(standard) if name == "-" else cast(TextIO, Path(name).open(mode, encoding="utf-8"))
