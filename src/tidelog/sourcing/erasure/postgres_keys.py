"""Keys in PostgreSQL: for owners on several machines.

A deleted row is gone for queries at once; VACUUM FULL then writes the table anew, so that its files have no byte of it.
The server's write-ahead log, its archive, its replicas and its backups are the operator's (`left_to_do`).
"""

from __future__ import annotations

import threading
import time
from typing import Any

from tidelog.errors import UsageError
from tidelog.sourcing.erasure.keys import FORMAT, Destroyed, SubjectKey, checked, new_key, new_salt, tag_of
from tidelog.views.stores.postgres_session import PostgresSession

LOCK = 0x7469_6465_6B65_7973  # two that make the tables at once take turns

LAYOUT = (
    "CREATE TABLE IF NOT EXISTS tidelog_keys_format (version integer NOT NULL, salt bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidelog_keys (tag bytea PRIMARY KEY, key_id text NOT NULL, secret bytea NOT NULL,"
    " made_ms bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tidelog_keys_destroyed (tag bytea PRIMARY KEY, key_id text NOT NULL UNIQUE,"
    " at_ms bigint NOT NULL, reason text NOT NULL)",
)


class PostgresKeys:
    def __init__(self, url: str) -> None:
        self._session = PostgresSession(url)
        self._lock = threading.Lock()
        with self._lock, self._session.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            self._enter(connection)
            for statement in LAYOUT:
                connection.execute(statement)
            found = connection.execute("SELECT version, salt FROM tidelog_keys_format").fetchone()
            if found is None:
                found = (FORMAT, new_salt())
                connection.execute("INSERT INTO tidelog_keys_format VALUES (%s, %s)", found)
        if found[0] != FORMAT:
            raise UsageError(f"keys have format {found[0]}, and this Tidelog knows {FORMAT}; use the newer one")
        self._salt = bytes(found[1])

    def _enter(self, connection: Any) -> None:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._session.schema}"')
        connection.execute(f'SET LOCAL search_path TO "{self._session.schema}"')

    def find(self, subject: str) -> SubjectKey | Destroyed | None:
        with self._lock, self._session.transaction() as connection:
            self._enter(connection)
            return self._find(connection, checked(subject))

    def find_or_make(self, subject: str) -> SubjectKey | Destroyed:
        with self._lock, self._session.transaction() as connection:
            self._enter(connection)
            connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK & 0x7FFFFFFF, checked(subject)))
            found = self._find(connection, subject)
            if found is None:
                found = new_key()
                made = (tag_of(self._salt, subject), found.id, found.secret, _now_ms())
                connection.execute("INSERT INTO tidelog_keys VALUES (%s, %s, %s, %s)", made)
            return found

    def is_destroyed(self, key_id: str) -> bool:
        with self._lock, self._session.transaction() as connection:
            self._enter(connection)
            query = "SELECT 1 FROM tidelog_keys_destroyed WHERE key_id = %s"
            return connection.execute(query, (key_id,)).fetchone() is not None

    def destroyed(self) -> int:
        with self._lock, self._session.transaction() as connection:
            self._enter(connection)
            return int(connection.execute("SELECT count(*) FROM tidelog_keys_destroyed").fetchone()[0])

    def destroy(self, subject: str, reason: str) -> Destroyed | None:
        with self._lock:
            with self._session.transaction() as connection:
                self._enter(connection)
                connection.execute(
                    "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK & 0x7FFFFFFF, checked(subject))
                )
                found = self._find(connection, subject)
                if isinstance(found, SubjectKey):
                    left = Destroyed(found.id, _now_ms(), reason)
                    connection.execute("DELETE FROM tidelog_keys WHERE tag = %s", (tag_of(self._salt, subject),))
                    row = (tag_of(self._salt, subject), *left)
                    connection.execute("INSERT INTO tidelog_keys_destroyed VALUES (%s, %s, %s, %s)", row)
                    found = left
            if found is not None:
                self._session.outside(f'VACUUM FULL "{self._session.schema}".tidelog_keys')
        return found

    def left_to_do(self) -> list[str]:
        where = self._session.address
        return [
            f"{where}: its write-ahead log has the key until it is overwritten (SELECT pg_switch_wal(); CHECKPOINT)",
            f"{where}: archives of that log, replicas and backups have it until they are deleted or have followed",
        ]

    def close(self) -> None:
        self._session.close()

    def _find(self, connection: Any, subject: str) -> SubjectKey | Destroyed | None:
        query, tag = "SELECT key_id, secret FROM tidelog_keys WHERE tag = %s", (tag_of(self._salt, subject),)
        found = connection.execute(query, tag).fetchone()
        if found is not None:
            return SubjectKey(found[0], bytes(found[1]))
        query = "SELECT key_id, at_ms, reason FROM tidelog_keys_destroyed WHERE tag = %s"
        gone = connection.execute(query, tag).fetchone()
        return None if gone is None else Destroyed(*gone)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
