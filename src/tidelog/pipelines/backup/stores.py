"""Stores in SQLite files, copied while appliers write them: whole micro-batches, as a reader sees them at an instant.

A store is copied before the log, so the log has every mark that the copy has: its applier goes on from there. Only
SQLite is copied. A store of another kind is filled from the view's topic, or is a server's, with backups of its own.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tidelog.control.urls import VARIABLE
from tidelog.errors import StorageError
from tidelog.views.stores.location import path_in
from tidelog.views.stores.sqlite_file import BUSY_S

PREFIXES = ("sqlite:///", "sqlite+fts:///")
LAYOUT = "SELECT 1 FROM sqlite_master WHERE name = '_tidelog_places'"


def file_of(url: str) -> Path | None:
    """Of a store in SQLite; None for any other, and where a part of the path is not said."""
    prefix = next((one for one in PREFIXES if url.startswith(one)), None)
    return None if prefix is None or VARIABLE.search(url) else Path(path_in(url, prefix))


def copy_store(url: str, target: Path) -> bool:
    """False where there is nothing of ours yet."""
    source = file_of(url)
    if source is None or not source.is_file():
        return False
    try:
        with closing(sqlite3.connect(source, timeout=BUSY_S)) as reading:
            if reading.execute(LAYOUT).fetchone() is None:
                return False
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(target)) as writing:
                reading.backup(writing)
                writing.execute("PRAGMA journal_mode = DELETE")  # so that all of it is in the one file
    except sqlite3.Error as error:
        raise StorageError(f"the store {url} could not be copied: {error}") from error
    return True
