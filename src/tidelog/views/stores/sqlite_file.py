"""A SQLite file of ours: which one it is, how it is made ready, and what its errors are to us."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path

from tidelog.errors import DiskFullError, QueryTimedOut, StorageError, TidelogError, UsageError
from tidelog.views.stores.location import Written

VERSION = 1
BUSY_S = 30.0
BUSY_LOOK_S = 0.01
ROOM_BYTES = 1 << 16  # below which SQLite cannot make the files that it needs beside ours


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


def cut_wal(connection: sqlite3.Connection, said: Written) -> None:
    """The write-ahead log is moved into the file and cut to nothing, which waits for readers of old states."""
    give_up = time.monotonic() + BUSY_S
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > give_up:
            raise StorageError(f"{said}: somebody reads it for long, so its write-ahead log was not cut; try again")
        time.sleep(BUSY_LOOK_S)


def has_layout(connection: sqlite3.Connection, said: Written) -> bool:
    with closing(connection.execute("SELECT 1 FROM sqlite_master WHERE name = '_tidelog_places'")) as found:
        if found.fetchone() is None:
            return False
    (version,) = connection.execute("SELECT max(version) FROM _tidelog_format").fetchone()
    if version > VERSION:
        raise UsageError(f"{said} is written in format {version}, and this Tidelog knows {VERSION}; use the newer one")
    return True


def error_of(said: Written, error: sqlite3.Error | OSError) -> TidelogError:
    if isinstance(error, OSError):
        full = error.errno in (ENOSPC, EDQUOT)
        return (DiskFullError if full else StorageError)(f"{said}: {said.told(error)}")
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(said)):
        return DiskFullError(f"no room for {said}: {error}; it goes on when there is")
    if extended in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE):  # SQLite does not say why
        return StorageError(f"{said}: {error}; is a quota used up, or the file as large as one may be here?")
    if code == sqlite3.SQLITE_INTERRUPT:
        return QueryTimedOut(f"{said} did not answer the query in its time; ask for a key, or for rows that are fewer")
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{said} is not a SQLite file; use another name")
    return StorageError(f"{said}: {error}")


def _is_full(said: Written) -> bool:
    with suppress(OSError):
        found = os.statvfs(said.path.parent)
        return found.f_bavail * found.f_frsize < ROOM_BYTES
    return False
