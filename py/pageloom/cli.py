"""The command line: `pageloom demo | tab | chat | batch | serve | check | bench | info | completion`.

Exit codes: 0 all done; 1 some rows or cases failed, or a fault of ours; 2 a wrong argument or file; 3 something that
the command needs is missing on this machine; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from pageloom import __version__
from pageloom.commands import batch, bench, chat, check, completion, demo, info, serve, tab
from pageloom.errors import BadModelFile, CapacityExceeded, DeviceError, InvalidArgument, NotSupported, PageloomError

_EXIT_CODES: dict[type[PageloomError], int] = {
    InvalidArgument: 2,
    BadModelFile: 2,
    CapacityExceeded: 2,
    NotSupported: 3,
    DeviceError: 3,
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pageloom", description="Many prompts at once over one local language model, on WebGPU."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (demo, tab, chat, batch, serve, check, bench, info):
        command.add_parser(commands)
    completion.add_parser(commands, build_parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; `arguments` are those of the process unless given. Returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except PageloomError as error:
        print(f"pageloom: {error.message}", file=sys.stderr)
        return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 1)
    except KeyboardInterrupt:
        logging.disable()  # what the stop cuts off, a browser's driver above all, complains on its way out
        print("\npageloom: stopped", file=sys.stderr)
        return 130
    return code
