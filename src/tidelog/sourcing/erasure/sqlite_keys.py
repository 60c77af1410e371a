"""Keys in a SQLite file: for all processes of one machine.

Rules:
- No write-ahead log: a rollback journal, which is gone when a transaction has ended, so that the file is all there is.
- `secure_delete` overwrites what is deleted. Moving rows may leave a copy between them, so the file is searched for the
  key's bytes before `destroy` returns, and written anew (VACUUM) while it has them. VACUUM alone would not do: it fills
  gaps with what the process has in its memory.
- Each use opens a connection: keys are remembered by the cipher, so that there are few, and a fork inherits none.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tidelog.errors import StorageError, UsageError
from tidelog.sourcing.erasure.keys import FORMAT, Destroyed, SubjectKey, checked, new_key, new_salt, tag_of

BUSY_S = 30.0
CLEARINGS = 10
OWNER_ONLY = 0o600

LAYOUT = """
CREATE TABLE IF NOT EXISTS tidelog_keys_format (version INTEGER NOT NULL, salt BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS tidelog_keys (tag BLOB PRIMARY KEY, key_id TEXT NOT NULL, secret BLOB NOT NULL,
    made_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tidelog_keys_destroyed (tag BLOB PRIMARY KEY, key_id TEXT NOT NULL UNIQUE,
    at_ms INTEGER NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID;
"""


class SqliteKeys:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._transaction() as connection:
            for statement in LAYOUT.split(";"):
                connection.execute(statement)
            found = connection.execute("SELECT version, salt FROM tidelog_keys_format").fetchone()
            if found is None:
                found = (FORMAT, new_salt())
                connection.execute("INSERT INTO tidelog_keys_format VALUES (?, ?)", found)
        if found[0] != FORMAT:
            raise UsageError(f"{path} has format {found[0]}, and this Tidelog knows {FORMAT}; use the newer one")
        self._salt = bytes(found[1])

    def find(self, subject: str) -> SubjectKey | Destroyed | None:
        with self._connection() as connection:
            return self._find(connection, checked(subject))

    def find_or_make(self, subject: str) -> SubjectKey | Destroyed:
        with self._transaction() as connection:
            found = self._find(connection, checked(subject))
            if found is None:
                found = new_key()
                made = (tag_of(self._salt, subject), found.id, found.secret, _now_ms())
                connection.execute("INSERT INTO tidelog_keys VALUES (?, ?, ?, ?)", made)
            return found

    def is_destroyed(self, key_id: str) -> bool:
        with self._connection() as connection:
            query = "SELECT 1 FROM tidelog_keys_destroyed WHERE key_id = ?"
            return connection.execute(query, (key_id,)).fetchone() is not None

    def destroyed(self) -> int:
        with self._connection() as connection:
            return int(connection.execute("SELECT count(*) FROM tidelog_keys_destroyed").fetchone()[0])

    def destroy(self, subject: str, reason: str) -> Destroyed | None:
        secret = None
        with self._transaction() as connection:
            found = self._find(connection, checked(subject))
            if isinstance(found, SubjectKey):
                secret = found.secret
                left = Destroyed(found.id, _now_ms(), reason)
                connection.execute("DELETE FROM tidelog_keys WHERE tag = ?", (tag_of(self._salt, subject),))
                connection.execute(
                    "INSERT INTO tidelog_keys_destroyed VALUES (?, ?, ?, ?)", (tag_of(self._salt, subject), *left)
                )
                found = left
        if found is not None:
            self._clear(secret)
        return found

    def _clear(self, secret: bytes | None) -> None:
        """Where it is not known what to look for, it was done before, and that time may have been cut short."""
        for _ in range(CLEARINGS):
            if secret is not None and secret not in self.path.read_bytes():
                return
            with self._connection() as connection:
                connection.execute("VACUUM")
            if secret is None:
                return
        raise StorageError(
            f"a destroyed key is still in {self.path}; run it again, or copy the file's rows to a new one"
        )

    def left_to_do(self) -> list[str]:
        return [f"backups of {self.path}: they have the key until they are deleted"]

    def close(self) -> None:
        """Nothing is open."""

    def _find(self, connection: sqlite3.Connection, subject: str) -> SubjectKey | Destroyed | None:
        tag = (tag_of(self._salt, subject),)
        found = connection.execute("SELECT key_id, secret FROM tidelog_keys WHERE tag = ?", tag).fetchone()
        if found is not None:
            return SubjectKey(found[0], bytes(found[1]))
        query = "SELECT key_id, at_ms, reason FROM tidelog_keys_destroyed WHERE tag = ?"
        gone = connection.execute(query, tag).fetchone()
        return None if gone is None else Destroyed(*gone)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, closing(self._open()) as connection:
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"keys in {self.path}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, OWNER_ONLY))
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
        return connection


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
