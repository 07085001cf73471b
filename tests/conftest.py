"""What holds for every test."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell has its background jobs ignore Ctrl-C, and their children inherit that: tests press it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
