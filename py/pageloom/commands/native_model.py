"""A model loaded natively for a command, as its options say, with progress on standard error."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pageloom.commands.batch_files import pool_settings
from pageloom.commands.page_files import DEFAULT_MODEL
from pageloom.commands.terminal import ProgressLine
from pageloom.engine.runner_settings import RunnerSettings
from pageloom.errors import InvalidArgument
from pageloom.language_model import LanguageModel
from pageloom.loading import load
from pageloom.worker.backends import BACKENDS


def add_backend_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", choices=[backend.name for backend in BACKENDS], default="webgpu", help="default: %(default)s"
    )


def check_model_file(path: Path) -> None:
    """Raise `InvalidArgument` where there is no file at `path`."""
    if not path.is_file():
        built_in = ", which `make setup` brings" if path == DEFAULT_MODEL else ""
        raise InvalidArgument(f"no model file at {str(path)!r}{built_in}; name one with --model", param="model")


async def load_model(options: argparse.Namespace) -> LanguageModel:
    """The model of `--model`, as `--backend` and the options of the device say.

    Raises as `load` does.
    """
    progress = ProgressLine(sys.stderr)
    model = await load(
        options.model,
        backend=options.backend,
        settings=RunnerSettings(**pool_settings(options)),
        on_progress=lambda told: progress.show_stage(told.stage, told.done, told.total),
    )
    progress.clear()
    for warning in model.warnings:
        print(f"pageloom: {warning}", file=sys.stderr)
    return model
