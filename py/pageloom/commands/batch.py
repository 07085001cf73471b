"""`pageloom batch`: a batch of prompts natively, on this machine's WebGPU adapter."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pageloom.backends.webgpu.load import RunnerSettings
from pageloom.commands import batch_files
from pageloom.commands.batch_files import PREFERENCES, RowWriter
from pageloom.commands.summary import adapter_name, print_summary
from pageloom.commands.terminal import ProgressLine
from pageloom.engine.events import Event, TokenEvent
from pageloom.jobs import Job, RefusedJob
from pageloom.language_model import load


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "batch",
        help="run a batch of prompts natively",
        description="Runs every prompt of a JSON Lines file at once natively, on WebGPU.",
    )
    batch_files.add_options(parser)
    parser.add_argument("--backend", choices=("webgpu",), default="webgpu", help="default: %(default)s")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    entries = batch_files.read_jobs(options)
    with batch_files.row_writer(options) as writer:
        asyncio.run(_run_jobs(entries, options, writer))
    return 1 if writer.failed else 0


async def _run_jobs(entries: Sequence[Job | RefusedJob], options: argparse.Namespace, writer: RowWriter) -> None:
    progress = ProgressLine(sys.stderr)
    chosen = {"prefer": PREFERENCES[options.gpu], "num_blocks": options.num_blocks, "block_size": options.block_size}
    settings = RunnerSettings(**{name: value for name, value in chosen.items() if value is not None})
    model = await load(
        options.model,
        backend=options.backend,
        settings=settings,
        on_progress=lambda told: progress.show_stage(told.stage, told.done, told.total),
    )
    try:
        progress.clear()
        for warning in model.warnings:
            print(f"pageloom: {warning}", file=sys.stderr)
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
        info = model.device_info
        adapter = adapter_name(info.description, info.adapter_class, has_f16=info.has_f16, home="native")
        print_summary(sys.stderr, rows, seconds, asdict(model.stats()), adapter)
    finally:
        await model.close()
