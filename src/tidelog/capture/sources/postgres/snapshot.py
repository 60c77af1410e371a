"""The rows of all tables at one instant, read by several connections at once.

Where the position of a snapshot comes from, by what is there (`way_of`):

    no slot                 it is created with an exported snapshot. Rows are exactly those at the slot's position.
    a slot that is lost     it is dropped, and then as above.
    a slot that works       an earlier snapshot was not read to its end, or a new one is asked for. The slot stays, and
                            rows are read at an instant of now, which is later than the slot's position.

Why the slot stays: rows of the first snapshot may be in the log already. If the slot were made anew, what happened
between the two would never be told, and a row that was deleted then would stay for ever. As it stays, the stream tells
everything from the first snapshot's position on over rows that are as new or newer. Each key then ends with its last
change: an insert or an update brings the whole row (or says which large value did not change, which it has by then), a
delete takes it away, and a key that no change names is as it was read. So all is right again when the stream has passed
the instant of the second snapshot; before that a row may go back in time. A table without a key may have rows twice.

- The exported snapshot lives as long as the connection that made it, and that one is held open until `close`.
- Every reader begins its transaction with SET TRANSACTION SNAPSHOT and keeps it, however often its connection is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.capture.change import Position, SourceTable, Values
from tidelog.capture.sources.postgres.catalog import Catalog, Known
from tidelog.capture.sources.postgres.pgoutput import lsn_of
from tidelog.capture.sources.postgres.reading import copied, has_ranges, key_readers, key_select, row_select, values_of
from tidelog.capture.sources.postgres.replication import Replication
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.slots import PLUGIN, ReplicationSlot, position_of, slot_of
from tidelog.errors import Disconnected, UsageError

CREATE, RECREATE, KEEP = "create", "recreate", "keep"
SPLIT_ROWS = 10_000  # a table with fewer is one range
SAMPLE_PER_PART = 200
ROW_BYTES = 100  # as which a row counts in a table that nobody has analyzed yet


def way_of(slot: ReplicationSlot | None) -> str:
    if slot is None:
        return CREATE
    return RECREATE if slot.is_lost else KEEP


class ExportedSnapshot:
    """Rows at the instant that a held connection exported by a name."""

    position: Position

    def __init__(self, session: SqlSession, catalog: Catalog, holder: Any, name: str) -> None:
        self._session = session
        self._catalog = catalog
        self._lock = threading.Lock()
        self._free: list[Any] = []
        self._all: list[Any] = []
        self._holder, self._name = holder, name
        self._known = {known.table: known for known in self._tables()}
        self._filters = {table: catalog.row_filter(table) for table in self._known}

    def tables(self) -> Sequence[SourceTable]:
        return list(self._known)

    def count(self, table: SourceTable) -> int:
        number = self._known[table].relation.id
        told = self._session.one(
            "SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples ELSE pg_relation_size(c.oid) / %s END), 0)"
            "::bigint FROM pg_class c WHERE c.relkind = 'r' AND"
            " (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s) WHERE isleaf))",
            [ROW_BYTES, number, number],
        )
        return int(told)

    def split(self, table: SourceTable, parts: int) -> Sequence[tuple[Values | None, Values | None]]:
        known = self._known[table]
        count = self.count(table)
        if parts < 2 or count < SPLIT_ROWS or not has_ranges(known):
            return [(None, None)]
        share = min(100.0, 100.0 * parts * SAMPLE_PER_PART / count)
        with self._reader() as connection:
            lines = copied(self._session, connection, key_select(known, f"TABLESAMPLE SYSTEM ({share:.6f})"))
            keys = [values_of(line, key_readers(known)) for line in lines]
        ends = bounds(keys, parts)
        return list(zip([None, *ends], [*ends, None], strict=True))

    def rows(
        self, table: SourceTable, after: Values | None, to: Values | None, size: int
    ) -> Iterator[Sequence[Values]]:
        known = self._known[table]
        statement = row_select(known, after, to, row_filter=self._filters[table])
        rows = []
        with self._reader() as connection:
            for line in copied(self._session, connection, statement):
                rows.append(values_of(line, known.readers))
                if len(rows) >= size:
                    yield rows
                    rows = []
        if rows:
            yield rows

    def close(self) -> None:
        with self._lock:
            held, self._all, self._free = self._all, [], []
        for connection in held:
            connection.close()
        self._holder.close()

    def _tables(self) -> Iterator[Known]:
        for listed in self._catalog.listed():
            known = self._catalog.known_now(listed.id, self._catalog.published_columns(listed))
            if known is not None:
                yield known

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with self._lock:
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = self._joined()
        try:
            yield connection
        finally:
            with self._lock:
                if not connection.closed:
                    self._free.append(connection)

    def _joined(self) -> Any:
        connection = self._session.connect()
        with self._lock:
            self._all.append(connection)
        import psycopg

        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self._name}'")
        except psycopg.Error as error:
            connection.close()
            said = self._session.refusal(str(error))
            raise Disconnected(f"the snapshot of {self._session.address} is gone with its connection: {said}") from None
        return connection


class PostgresSnapshot(ExportedSnapshot):
    """At the position of a slot, which is made where it is not there."""

    def __init__(self, session: SqlSession, catalog: Catalog, slot: str, system: str) -> None:
        found = slot_of(session, slot)
        way = way_of(found)
        if found is not None and found.plugin != PLUGIN:
            raise UsageError(f"the slot {slot} is of the plugin {found.plugin}, not of {PLUGIN}; drop it")
        if way == RECREATE:
            session.query("SELECT pg_drop_replication_slot(%s)", [slot])
        if found is not None and way == KEEP:
            self.lsn, (holder, name) = found.confirmed, exported(session)
        else:
            self.lsn, holder, name = _created(session, slot)
        self.position = position_of(self.lsn, system)
        super().__init__(session, catalog, holder, name)


def exported(session: SqlSession) -> tuple[Any, str]:
    """A connection that holds a snapshot of now, and its name."""
    holder = session.connect()
    with session.telling():
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        name = holder.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
    return holder, str(name)


def _created(session: SqlSession, slot: str) -> tuple[int, Any, str]:
    holder = Replication(session)
    try:
        told = holder.command(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL {PLUGIN} EXPORT_SNAPSHOT')[0]
    except BaseException:
        holder.close()
        raise
    return lsn_of(told["consistent_point"]), holder, told["snapshot_name"]


def bounds(keys: Sequence[Values], parts: int) -> list[Values]:
    """Ends of ranges from a sample in the order of the key: as many rows between each two, and no end twice."""
    ends: list[Values] = []
    for part in range(1, parts):
        at = part * len(keys) // parts
        if at < len(keys) and "null" not in keys[at] and (not ends or keys[at] != ends[-1]):
            ends.append(keys[at])
    return ends
