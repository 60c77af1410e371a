"""A SQLite file of ours: which one it is, how it is made ready, and what its errors are to us."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tidelog.errors import DiskFullError, QueryTimedOut, StorageError, TidelogError, UsageError

VERSION = 1
BUSY_S = 30.0
BUSY_LOOK_S = 0.01


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_wal(connection: sqlite3.Connection) -> None:
    """For this one lock SQLite does not wait by itself, and several may make the file at once."""
    give_up = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
        time.sleep(BUSY_LOOK_S)


def has_layout(connection: sqlite3.Connection, path: Path) -> bool:
    with closing(connection.execute("SELECT 1 FROM sqlite_master WHERE name = '_tidelog_places'")) as found:
        if found.fetchone() is None:
            return False
    (version,) = connection.execute("SELECT max(version) FROM _tidelog_format").fetchone()
    if version > VERSION:
        raise UsageError(f"{path} is written in format {version}, and this Tidelog knows {VERSION}; use the newer one")
    return True


def error_of(path: Path, error: sqlite3.Error) -> TidelogError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFullError(f"no room for {path}: {error}")
    if code == sqlite3.SQLITE_INTERRUPT:
        return QueryTimedOut(f"{path} did not answer the query in its time; ask for a key, or for rows that are fewer")
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is no SQLite file; use another name")
    return StorageError(f"{path}: {error}")
