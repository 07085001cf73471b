"""`pageloom serve`: a model for every OpenAI client of this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from pageloom.commands.batch_files import add_device_options
from pageloom.commands.native_model import add_backend_option, check_model_file, load_model
from pageloom.commands.page_files import DEFAULT_MODEL
from pageloom.errors import InvalidArgument, NotSupported
from pageloom.language_model import LanguageModel

USUAL_PORT = 8643
TOKEN_VARIABLE = "PAGELOOM_TOKEN"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a model to OpenAI clients on this machine",
        description="Answers OpenAI's HTTP API on 127.0.0.1, many clients at once, and runs batches, which survive a "
        "restart. Ctrl-C or SIGTERM lets what runs end, then stops; a second Ctrl-C stops at once.",
    )
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL, metavar="FILE", help="default: the built-in one")
    parser.add_argument("--name", metavar="NAME", help="the model's name for clients; default: its file's")
    parser.add_argument(
        "--port", type=int, default=USUAL_PORT, metavar="N", help="0 is a free one; default: %(default)s"
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="keeps batches; default: in the user's state folder")
    parser.add_argument("--json", action="store_true", help="say where it serves as one JSON object")
    add_backend_option(parser)
    access = parser.add_argument_group("who may ask, besides programs of this machine")
    access.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="pages of this origin; may be given again"
    )
    access.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"ask every client for the token in this file; without it, for the one in {TOKEN_VARIABLE}, if any",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument("--queue", type=int, metavar="N", help="answers that may wait; beyond them clients get a 429")
    limits.add_argument("--max-body", type=int, metavar="BYTES", help="of a request in JSON")
    limits.add_argument("--max-tensors", type=int, metavar="BYTES", help="of the body of an operator's call")
    limits.add_argument("--timeout", type=float, metavar="SECONDS", help="of a request")
    limits.add_argument("--grace", type=float, metavar="SECONDS", help="for what runs when it is told to stop")
    add_device_options(parser)
    parser.set_defaults(run=run)


_LIMITS = {
    "queue": "queue",
    "max_body": "body_bytes",
    "max_tensors": "tensor_bytes",
    "timeout": "request_seconds",
    "grace": "grace_seconds",
}
"""Options by the limits that they set."""


def run(options: argparse.Namespace) -> int:
    try:
        from pageloom.worker.config import Access, Limits  # noqa: PLC0415 - optional
        from pageloom.worker.server import Service, serve  # noqa: PLC0415
    except ImportError as error:
        raise NotSupported(f"serving needs more packages: pip install 'pageloom[worker]' ({error})") from error

    check_model_file(options.model)
    name = options.name or options.model.stem
    given = {limit: value for option, limit in _LIMITS.items() if (value := getattr(options, option)) is not None}
    adapter = ""

    async def load() -> LanguageModel:
        nonlocal adapter
        model = await load_model(options)
        adapter = model.device_name
        return model

    def on_ready(url: str) -> None:
        if options.json:
            print(json.dumps({"url": url, "model": name, "backend": options.backend, "adapter": adapter}), flush=True)
        else:
            print(f"Serving {name} at {url}/v1   (Ctrl-C stops it)\nadapter: {adapter}", flush=True)

    service = Service(
        name=name,
        backend=options.backend,
        load=load,
        state=options.state or usual_state(),
        port=options.port,
        access=Access(frozenset(options.allow_origin), read_token(options.token_file)),
        limits=Limits(**given),
    )
    asyncio.run(serve(service, on_ready))
    print("pageloom: stopped", file=sys.stderr)
    return 0


def usual_state() -> Path:
    """`$XDG_STATE_HOME/pageloom/worker.sqlite3`, or below `~/.local/state`."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "pageloom" / "worker.sqlite3"


def read_token(path: Path | None) -> str | None:
    """The token of a file, or else of the environment. Raises `InvalidArgument` for a file that cannot be read."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the token of {str(path)!r}: {error}", param="token_file") from error
