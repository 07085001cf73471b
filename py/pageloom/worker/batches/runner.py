"""Serves the rows of batches, a bounded number at once; interactive requests come first where places are short."""

from __future__ import annotations

import asyncio
import functools
import json
import sqlite3

from pageloom.errors import DeviceLost, PageloomError
from pageloom.worker.batches.batch_table import Batch, PendingRow, RowKey
from pageloom.worker.batches.disk import Disk
from pageloom.worker.errors import QueueFull, Stopping
from pageloom.worker.responses import RETRY_SECONDS, encode_json, internal_error, log
from pageloom.worker.text_service import TextService


class BatchRunner:
    """Takes unfinished rows, also those that another run of the worker left, until it is closed."""

    def __init__(self, disk: Disk, service: TextService, at_once: int) -> None:
        self._disk = disk
        self._service = service
        self._at_once = at_once
        self._running: dict[RowKey, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._halted = False
        self._feeding = asyncio.ensure_future(self._feed())

    def look_again(self) -> None:
        """There may be new rows."""
        self._wake.set()

    async def cancel(self, batch_id: str) -> Batch:
        """End a batch and what runs of it. Raises `NotFound`."""
        batch = await self._disk.run(lambda: self._disk.batches.cancel(batch_id))
        for (number, _), task in self._running.items():
            if number == batch.number:
                task.cancel()
        return batch

    async def close(self) -> None:
        """Stop; what is not finished stays to be done."""
        tasks = [self._feeding, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self) -> None:
        while True:
            self._wake.clear()
            try:
                rows = await self._next_rows()
            except sqlite3.Error as error:
                log.error("the rows of batches could not be read", exc_info=error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for row in rows:
                task = asyncio.ensure_future(self._serve(row))
                self._running[row.key] = task
                task.add_done_callback(functools.partial(self._ended, row.key))
            await self._wake.wait()

    async def _next_rows(self) -> list[PendingRow]:
        room = self._at_once - len(self._running)
        if room <= 0 or self._halted:
            return []
        # Those that run are unfinished too, and may come first.
        limit = room + len(self._running)
        rows = await self._disk.run(lambda: self._disk.batches.pending(self._service.name, limit))
        return [row for row in rows if row.key not in self._running][:room]

    def _ended(self, key: RowKey, _: asyncio.Task[None]) -> None:
        del self._running[key]
        self._wake.set()

    async def _serve(self, row: PendingRow) -> None:
        """Serve a row and keep the response; a row that the worker failed is left for its next run."""
        try:
            status, response = await self._response(row)
            await self._disk.run(lambda: self._disk.batches.finish(row.key, status, response))
        except (DeviceLost, Stopping):
            self._halted = True
        except sqlite3.Error as error:
            log.error("a row's response could not be kept", exc_info=error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _response(self, row: PendingRow) -> tuple[int, str]:
        try:
            call = self._service.parse(row.endpoint, json.loads(row.body))
            while True:
                try:
                    return 200, encode_json(await self._service.answer(call)).decode()
                except QueueFull:
                    await asyncio.sleep(RETRY_SECONDS)
        except (DeviceLost, Stopping):
            raise
        except PageloomError as error:
            return error.http_status, encode_json(error.to_openai()).decode()
        except Exception as error:
            failure = internal_error(error)
            return failure.http_status, encode_json(failure.to_openai()).decode()
