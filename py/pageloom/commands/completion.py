"""`pageloom completion`: what a shell sources to complete the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from pageloom.errors import NotSupported

SHELLS = ("bash", "zsh", "tcsh")


def add_parser(commands: Any, build_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """`build_parser` makes the whole command line, which the shell is told of."""
    parser = commands.add_parser(
        "completion",
        help="complete this command line in a shell",
        description='Prints a script for the shell. In bash: eval "$(pageloom completion bash)"',
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=lambda options: run(options, build_parser()))


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab  # noqa: PLC0415 - optional
    except ImportError as error:
        raise NotSupported("completion needs the package shtab: pip install 'pageloom[worker]'") from error
    print(shtab.complete(parser, shell=options.shell))
    return 0
