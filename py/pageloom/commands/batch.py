"""`pageloom batch`: a batch of prompts natively, on this machine's WebGPU adapter."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pageloom.commands import batch_files
from pageloom.commands.batch_files import RowWriter
from pageloom.commands.native_model import add_backend_option, load_model
from pageloom.commands.summary import print_summary
from pageloom.commands.terminal import ProgressLine
from pageloom.engine.events import Event, TokenEvent
from pageloom.jobs import Job, RefusedJob


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "batch",
        help="run a batch of prompts natively",
        description="Runs every prompt of a JSON Lines file at once natively, on WebGPU.",
    )
    batch_files.add_options(parser)
    add_backend_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    entries = batch_files.read_jobs(options)
    with batch_files.row_writer(options) as writer:
        asyncio.run(_run_jobs(entries, options, writer))
    return 1 if writer.failed else 0


async def _run_jobs(entries: Sequence[Job | RefusedJob], options: argparse.Namespace, writer: RowWriter) -> None:
    model = await load_model(options)
    progress = ProgressLine(sys.stderr)
    try:
        ended = tokens = 0

        def show() -> None:
            progress.show("Running", ended, len(entries), f"{ended} of {len(entries)} rows, {tokens} tokens")

        def on_event(index: int, event: Event) -> None:
            nonlocal tokens
            tokens += isinstance(event, TokenEvent)
            show()

        def on_row(row: Mapping[str, Any]) -> None:
            nonlocal ended
            ended += 1
            writer.put(row)
            show()

        started = time.monotonic()
        rows = await model.run_batch(entries, on_event=on_event, on_row=on_row)
        seconds = time.monotonic() - started
        progress.clear()
        print_summary(sys.stderr, rows, seconds, asdict(model.stats()), model.device_name)
    finally:
        await model.close()
