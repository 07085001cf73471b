"""Uploaded files."""

from __future__ import annotations

import sqlite3
import time
import uuid
from dataclasses import dataclass
from typing import Any

from pageloom.worker.errors import NotFound


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file without its content. `created` is in seconds since 1970."""

    id: str
    filename: str
    purpose: str
    created: int
    num_bytes: int

    def to_fields(self) -> dict[str, Any]:
        """OpenAI's file object."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.num_bytes,
            "created_at": self.created,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }


class FileTable:
    """The files of one database."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def add(self, filename: str, purpose: str, content: bytes) -> StoredFile:
        """Keep a file under a new id."""
        file = StoredFile(f"file-{uuid.uuid4().hex}", filename, purpose, int(time.time()), len(content))
        values = (file.id, file.filename, file.purpose, file.created, content)
        self._database.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", values)
        return file

    def all(self) -> list[StoredFile]:
        """Newest first."""
        return [StoredFile(*row) for row in self._database.execute(f"{_SELECT} ORDER BY created DESC, id")]

    def get(self, file_id: str) -> StoredFile:
        """Raises `NotFound`."""
        return StoredFile(*_found(self._database.execute(f"{_SELECT} WHERE id = ?", (file_id,)), file_id))

    def content(self, file_id: str) -> bytes:
        """Raises `NotFound`."""
        content: bytes = _found(self._database.execute("SELECT content FROM files WHERE id = ?", (file_id,)), file_id)[
            0
        ]
        return content

    def delete(self, file_id: str) -> None:
        """A batch keeps what it took from the file. Raises `NotFound`."""
        if not self._database.execute("DELETE FROM files WHERE id = ?", (file_id,)).rowcount:
            raise no_file(file_id)


def no_file(file_id: str) -> NotFound:
    """What is said of an id that no file has."""
    return NotFound(f"there is no file {file_id!r}", param="file_id")


def _found(rows: sqlite3.Cursor, file_id: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = rows.fetchone()
    if row is None:
        raise no_file(file_id)
    return row


_SELECT = "SELECT id, filename, purpose, created, length(content) FROM files"
