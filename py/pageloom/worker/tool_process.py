"""`pageloom check` and `pageloom bench` for clients: one at a time, in a process that ends with its client.

A process of its own, because a case or a measurement cannot be interrupted, may crash a driver, and would take turns
with the engine in this one's interpreter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from pageloom.errors import InvalidArgument, NotSupported, PageloomError
from pageloom.worker.errors import QueueFull, Stopping

LONGEST_LINE = 2**20
"""Bytes of a line that a command prints."""
_ERRORS: dict[int, type[PageloomError]] = {2: InvalidArgument, 3: NotSupported}
"""By the exit codes of the command line."""


class ToolProcesses:
    """Used on the server's event loop."""

    def __init__(self) -> None:
        self._running: ToolProcess | None = None
        self._starting = False
        self._stopping = False

    async def start(self, arguments: Sequence[str]) -> ToolProcess:
        """Start `pageloom ARGUMENTS`. Raises `QueueFull` while another one runs, `Stopping` once `stop` was called."""
        if self._stopping:
            raise Stopping("the worker is stopping; ask again once it runs")
        if self._starting or (self._running is not None and not self._running.is_ending):
            raise QueueFull("a check or a bench runs already, and they run one at a time; try again later")
        self._starting = True
        try:
            if self._running is not None:
                await self._running.ended()
            self._running = await ToolProcess.start(arguments)
        finally:
            self._starting = False
        return self._running

    def stop(self) -> None:
        """Take nothing new; what runs goes on."""
        self._stopping = True

    def abort(self) -> None:
        """End what runs; who follows it gets `Stopping`."""
        if self._running is not None:
            self._running.abort()

    async def close(self) -> None:
        """Take nothing new, end what runs and wait for its end."""
        self.stop()
        if self._running is not None:
            self._running.abort()
            await self._running.ended()


class ToolProcess:
    """One run of the command line."""

    def __init__(self, process: asyncio.subprocess.Process, errors: BinaryIO) -> None:
        """`errors` gets what the process says on standard error."""
        self._process = process
        self._errors = errors
        self._aborted = False

    @classmethod
    async def start(cls, arguments: Sequence[str]) -> ToolProcess:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pageloom",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LONGEST_LINE,
                start_new_session=True,  # so that processes of its own end with it
            )
        except BaseException:
            errors.close()
            raise
        return cls(process, errors)

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, or was told to."""
        return self._aborted or self._process.returncode is not None

    async def lines(self) -> AsyncIterator[str]:
        """What it prints, line by line as it comes.

        Raises once it has ended with another code than 0, by that code; `Stopping` where `abort` ended it.
        """
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line.decode(errors="replace").rstrip("\n")
        code = await self._process.wait()
        if self._aborted:
            raise Stopping("the worker ended this run; ask again")
        if code in _ERRORS:
            raise _ERRORS[code](self._last_words())
        if code:
            raise PageloomError(f"the run ended with code {code}: {self._last_words()}")

    def abort(self) -> None:
        """End it now, with the processes that it started. Safe to repeat, and after the end."""
        if not self.is_ending:
            self._aborted = True
            with suppress(ProcessLookupError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait for its end."""
        await self._process.wait()

    def _last_words(self) -> str:
        """The last line of standard error, where the command line tells why it ends."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("pageloom: ") if lines else "it said nothing"
