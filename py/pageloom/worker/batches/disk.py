"""The database on a thread of its own, so that a write to the disk stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pageloom.worker.batches.batch_table import BatchTable
from pageloom.worker.batches.database import open_database
from pageloom.worker.batches.file_table import FileTable

T = TypeVar("T")


class Disk:
    """Files and batches. Their methods are called inside `run`, and nowhere else."""

    def __init__(self, path: Path) -> None:
        """Raises as `open_database` does."""
        self._database = open_database(path)
        self._thread = ThreadPoolExecutor(1, "pageloom-disk")
        self.files = FileTable(self._database)
        self.batches = BatchTable(self._database)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, on the thread; one after another."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Finish what was begun, and unlock the file."""
        await asyncio.to_thread(self._thread.shutdown)
        self._database.close()
