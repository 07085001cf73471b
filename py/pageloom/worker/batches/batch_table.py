"""Batches and their rows."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pageloom.worker.batches.file_table import no_file
from pageloom.worker.batches.input import BatchRow, LineError
from pageloom.worker.errors import NotFound

Status = Literal["in_progress", "completed", "failed", "cancelled"]
Outcome = Literal["output", "error"]
RowKey = tuple[int, int]
"""The number of a batch, and the position of a row in it from 0."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch and how far it is. Times are in seconds since 1970."""

    number: int
    id: str
    file: str
    endpoint: str
    model: str
    status: Status
    created: int
    ended: int | None
    metadata: str
    errors: str
    total: int
    completed: int
    """Rows with an answer."""
    failed: int
    """Rows with an error."""

    def to_fields(self) -> dict[str, Any]:
        """OpenAI's batch object."""
        errors = json.loads(self.errors)
        ended = {
            status: self.ended if self.status == status else None for status in ("completed", "failed", "cancelled")
        }
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": {"object": "list", "data": errors} if errors else None,
            "input_file_id": self.file,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": result_file(self.id, "output") if self.completed else None,
            "error_file_id": result_file(self.id, "error") if self.failed else None,
            "created_at": self.created,
            "in_progress_at": self.created,
            **{f"{status}_at": time for status, time in ended.items()},
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": json.loads(self.metadata) or None,
        }


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row to be served."""

    key: RowKey
    endpoint: str
    body: str


def result_file(batch_id: str, outcome: Outcome) -> str:
    """The id of the file of a batch's answers, or of its errors."""
    return f"file-{outcome}-{batch_id}"


class BatchTable:
    """The batches of one database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def add(
        self,
        file_id: str,
        endpoint: str,
        model: str,
        metadata: Mapping[str, str],
        rows: Sequence[BatchRow],
        errors: Sequence[LineError],
    ) -> Batch:
        """A new batch of `rows`, or one that has failed because of `errors`."""
        now = int(time.time())
        batch_id = f"batch_{uuid.uuid4().hex}"
        status: Status = "failed" if errors else "in_progress"
        texts = json.dumps(dict(metadata)), json.dumps([error.to_fields() for error in errors])
        values = (batch_id, file_id, endpoint, model, status, now, now if errors else None, *texts)
        with self._transaction():
            number = self._database.execute(
                "INSERT INTO batches (id, file, endpoint, model, status, created, ended, metadata, errors) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            self._database.executemany(
                "INSERT INTO rows (batch, position, custom_id, body) VALUES (?, ?, ?, ?)",
                ((number, row.position, row.custom_id, row.body) for row in rows),
            )
        return self.get(batch_id)

    def get(self, batch_id: str) -> Batch:
        """Raises `NotFound`."""
        row = self._database.execute(f"{_SELECT} WHERE id = ?", (batch_id,)).fetchone()
        if row is None:
            raise NotFound(f"there is no batch {batch_id!r}", param="batch_id")
        return Batch(*row)

    def newest(self, limit: int, after: str | None) -> list[Batch]:
        """At most `limit` batches, newest first, those older than `after` where that is given. Raises `NotFound`."""
        bound = self.get(after).number if after is not None else None
        where, values = ("", ()) if bound is None else (" WHERE number < ?", (bound,))
        rows = self._database.execute(f"{_SELECT}{where} ORDER BY number DESC LIMIT ?", (*values, limit))
        return [Batch(*row) for row in rows]

    def cancel(self, batch_id: str) -> Batch:
        """End a batch that has not ended; its finished rows stay. Raises `NotFound`."""
        self._end(self.get(batch_id).number, "cancelled")
        return self.get(batch_id)

    def pending(self, model: str, limit: int) -> list[PendingRow]:
        """The first unfinished rows of batches for `model`, oldest batch first."""
        rows = self._database.execute(
            "SELECT batch, position, endpoint, body FROM batches JOIN rows ON batch = number "
            "WHERE batches.status = 'in_progress' AND model = ? AND response IS NULL ORDER BY batch, position LIMIT ?",
            (model, limit),
        )
        return [PendingRow((batch, position), endpoint, body) for batch, position, endpoint, body in rows]

    def finish(self, key: RowKey, status: int, response: str) -> None:
        """Keep a row's response, the first one alone; with the last row the batch is completed."""
        with self._transaction():
            self._database.execute(
                "UPDATE rows SET status = ?, response = ? WHERE batch = ? AND position = ? AND response IS NULL",
                (status, response, *key),
            )
            if not self._database.execute(
                "SELECT EXISTS (SELECT 1 FROM rows WHERE batch = ? AND response IS NULL)", key[:1]
            ).fetchone()[0]:
                self._end(key[0], "completed")

    def results(self, batch_id: str, outcome: Outcome) -> bytes:
        """The lines of a batch's answers or errors so far, in the order of its rows. Raises `NotFound`."""
        try:
            number = self.get(batch_id).number
        except NotFound as error:
            raise no_file(result_file(batch_id, outcome)) from error
        rows = self._database.execute(
            "SELECT position, custom_id, status, response FROM rows "
            f"WHERE batch = ? AND response IS NOT NULL AND status {'=' if outcome == 'output' else '<>'} 200 "
            "ORDER BY position",
            (number,),
        )
        return b"".join(_result_line(batch_id, *row) for row in rows)

    def _end(self, number: int, status: Status) -> None:
        self._database.execute(
            "UPDATE batches SET status = ?, ended = ? WHERE number = ? AND status = 'in_progress'",
            (status, int(time.time()), number),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _result_line(batch_id: str, position: int, custom_id: str, status: int, response: str) -> bytes:
    """OpenAI's line of a result. `response` is JSON already and goes in as it stands."""
    names = json.dumps({"id": f"{batch_id}_{position}", "custom_id": custom_id, "error": None})
    line = f'{names[:-1]}, "response": {{"status_code": {status}, "request_id": "{batch_id}_{position}", "body": '
    return f"{line}{response}}}}}\n".encode()


_SELECT = (
    "SELECT number, id, file, endpoint, model, status, created, ended, metadata, errors, "
    "(SELECT count(*) FROM rows WHERE batch = number), "
    "(SELECT count(*) FROM rows WHERE batch = number AND rows.status = 200), "
    "(SELECT count(*) FROM rows WHERE batch = number AND rows.status <> 200) FROM batches"
)
