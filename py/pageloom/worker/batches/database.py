"""The SQLite file of files and batches. Everything that is committed is on the disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pageloom.errors import InvalidArgument

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE files (
    id TEXT PRIMARY KEY, filename TEXT NOT NULL, purpose TEXT NOT NULL, created INTEGER NOT NULL, content BLOB NOT NULL
);
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, file TEXT NOT NULL, endpoint TEXT NOT NULL,
    model TEXT NOT NULL, status TEXT NOT NULL, created INTEGER NOT NULL, ended INTEGER,
    metadata TEXT NOT NULL, errors TEXT NOT NULL
);
CREATE TABLE rows (
    batch INTEGER NOT NULL REFERENCES batches (number), position INTEGER NOT NULL, custom_id TEXT NOT NULL,
    body TEXT NOT NULL, status INTEGER, response TEXT, PRIMARY KEY (batch, position)
) WITHOUT ROWID;
CREATE INDEX unfinished ON rows (batch, position) WHERE response IS NULL;
"""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, made where it is missing, and lock it until it is closed.

    The connection may be used by any thread, one at a time. Raises `InvalidArgument` where the file cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    except (OSError, sqlite3.Error) as error:
        reason = "another worker has it open" if "locked" in str(error) else str(error)
        raise InvalidArgument(
            f"the state file {str(path)!r} cannot be used: {reason}; name another with --state", param="state"
        ) from error
    if version not in (0, SCHEMA_VERSION):
        raise InvalidArgument(
            f"the state file {str(path)!r} was made by another version of Pageloom; name another with --state",
            param="state",
        )
    return database
