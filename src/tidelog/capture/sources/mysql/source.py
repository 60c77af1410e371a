"""MySQL and MariaDB as a source of capture. Nothing is made in the database: a reader of the binlog is a replica.

    connect(url, name, tables)       name: the capture's; its replica's number comes from it

Rules:
- The position is the GTIDs (positions.py); the server forgets its binlog by age, and then it is `SourceLost`.
- Watermarks are read-only: what the server has committed when one is asked for (its GTIDs) is the place at which the
  stream gives it back. `chunk` waits until everything before that can be seen, since MariaDB shows a transaction in
  its GTIDs a moment before its rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any

from tidelog import __version__
from tidelog.capture.change import Begin, CheckFinding, Position, RowChange, SourceLag, SourceTable, Values
from tidelog.capture.source import Newcomer
from tidelog.capture.sources.mysql import checking, session
from tidelog.capture.sources.mysql.ends import binlog_end, committed, file_order, snapshot_end
from tidelog.capture.sources.mysql.keys import between, expression, order
from tidelog.capture.sources.mysql.session import query
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.capture.sources.mysql.snapshot import (
    BinlogSnapshot,
    as_values,
    converters_of,
    key_of,
    keys_by_order,
    select,
)
from tidelog.capture.sources.mysql.stream import BinlogPlace, BinlogStream
from tidelog.control.captures import REPLACED
from tidelog.errors import Disconnected, UsageError

VISIBLE_SECONDS = 30.0  # for what is in the binlog to be seen by queries: a moment, as a rule
_SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def connect(url: str, name: str, tables: Sequence[str]) -> MySqlSource:
    return MySqlSource(session.settings(url), name, tables)


class MySqlSource:
    def __init__(self, wanted: session.MysqlSettings, name: str, tables: Sequence[str]) -> None:
        self._settings, self._name, self._patterns = wanted, name, tables
        self._control = session.connect(wanted)
        self._lock = threading.RLock()  # of that connection
        with session.mapped(wanted):
            ((version,),) = query(self._control, "SELECT VERSION()")
        self._mariadb = "mariadb" in version.lower()
        self.connector = "mariadb" if self._mariadb else "mysql"
        self.database = wanted.database
        self.source_schema = source_schema(self.connector)
        self._shapes = Shapes(tables, wanted.database, self._mariadb)
        self._stream: BinlogStream | None = None
        self._looked = False
        self._snapshot_position: Position = {"gtid": None, "file": "", "pos": 0}

    def check(self) -> Sequence[CheckFinding]:
        with self._lock, session.mapped(self._settings):
            patterns = [pattern if "." in pattern else f"{self.database}.{pattern}" for pattern in self._patterns]
            facts = checking.ask(self._control, self._settings, self._shapes, patterns, self._mariadb)
        return checking.judge(facts)

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        """What the patterns did not match before. A table that is made later is told by the binlog from its first row
        on; where that was before a start, it is read all the same. And what has got its name from another table."""
        first, self._looked = not self._looked, True
        new = [table for table in self.tables() if table.full_name not in known] if first else []
        replaced = [self._now(name) for name, id in known.items() if id == REPLACED]
        return [
            *(Newcomer(table, False) for table in new),
            *(Newcomer(table, bool(table.key)) for table in replaced if table is not None),
        ]

    def _now(self, name: str) -> SourceTable | None:
        with self._lock, session.mapped(self._settings):
            return self._shapes.now(self._control, *name.split(".", 1))

    def prepare(self) -> None:
        """A replica needs nothing of its own in the database."""

    def remove(self) -> Sequence[str]:
        return []  # a replica has made nothing

    def snapshot(self) -> BinlogSnapshot:
        snapshot = BinlogSnapshot(self._settings, self._shapes, self._mariadb)
        self._snapshot_position = snapshot.position
        return snapshot

    def tables(self) -> Sequence[SourceTable]:
        """All that are captured, as they are now."""
        with self._lock, session.mapped(self._settings):
            return self._shapes.load(self._control)

    def stream(self, position: Position) -> BinlogStream:
        self._stream = BinlogStream(self._settings, self._name, self._shapes, position, self._mariadb)
        return self._stream

    # Incremental snapshots ------------------------------------------------------------------------------------------

    def chunk(self, table: SourceTable, after: Values | None, to: Values | None, size: int) -> Sequence[Values]:
        key = key_of(self._shapes, table)
        if not key:
            raise UsageError(f"{table.full_name} has no primary key, so it cannot be read piece by piece")
        condition, values = between(key, after, to)
        sql = f"{select(self._shapes, table)} WHERE {condition} ORDER BY {order(key)} LIMIT {size:d}"
        with self._lock, session.mapped(self._settings):
            self._see_all()
            try:
                rows = query(self._control, sql, values)
            finally:
                query(self._control, "ROLLBACK")
        converters = converters_of(self._shapes, table)
        return [as_values(converters, row) for row in rows]

    def _see_all(self) -> None:
        """Begins a transaction that sees everything that is in the binlog by now."""
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        if not self._mariadb:
            query(self._control, begin)
            return
        end = file_order(*binlog_end(self._control))
        deadline = time.monotonic() + VISIBLE_SECONDS
        while True:
            query(self._control, begin)
            if file_order(*snapshot_end(self._control)) >= end:
                return
            query(self._control, "ROLLBACK")
            if time.monotonic() > deadline:
                raise Disconnected(f"{self._settings.shown} has transactions in its binlog that it does not finish")
            time.sleep(0.001)

    def last_key(self, table: SourceTable) -> Values | None:
        key = key_of(self._shapes, table)
        backwards = ", ".join(f"{expression(*column)} DESC" for column in key)
        with self._lock, session.mapped(self._settings):
            keys = keys_by_order(self._control, self._shapes, table, f"{backwards} LIMIT 1") if key else []
        return keys[0] if keys else None

    def watermark(self, text: str) -> None:
        if self._stream is None:
            raise UsageError("a watermark is given back by a stream, and this source has no stream open")
        with self._lock, session.mapped(self._settings):
            _, head = committed(self._control, self._mariadb)
        self._stream.put_watermark(head, text)

    # The source block -----------------------------------------------------------------------------------------------

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        where = row.where
        if where is None:
            at = self._snapshot_position
            where = BinlogPlace(begin.commit_us // 1_000_000, 0, at["file"], at["pos"], 0)
        gtid = f'"{begin.id}"' if row.where is not None and not begin.id.startswith("file=") else "null"
        seconds = where.timestamp
        return (
            f'{{"version":"{__version__}","connector":"{self.connector}","name":{encode_basestring(name)},'
            f'"ts_ms":{seconds * 1000},"snapshot":"{snapshot}","db":{encode_basestring(row.table.schema)},'
            f'"sequence":null,"ts_us":{seconds * 1_000_000},"ts_ns":{seconds * 1_000_000_000},'
            f'"table":{encode_basestring(row.table.name)},"server_id":{where.server_id},"gtid":{gtid},'
            f'"file":"{where.file}","pos":{where.pos},"row":{where.row},"thread":null,"query":null}}'
        )

    # How far --------------------------------------------------------------------------------------------------------

    def lag(self) -> SourceLag:
        with self._lock, session.mapped(self._settings):
            _, head = committed(self._control, self._mariadb)
            if self._stream is not None and self._stream.has_read(head):
                return SourceLag(0, 0.0, None)
            end = binlog_end(self._control)
            ((now,),) = query(self._control, "SELECT UNIX_TIMESTAMP()")
            sizes = {name: int(size) for name, size, *_ in query(self._control, "SHOW BINARY LOGS")}
        if self._stream is None:
            return SourceLag(None, None, None)
        at = self._stream.position
        behind = bytes_between(sizes, (at["file"], at["pos"]), end)
        late = max(0.0, float(now) - self._stream.last_timestamp) if behind and self._stream.last_timestamp else 0.0
        return SourceLag(behind, late, None, "" if behind is not None else "lost")

    def heartbeat(self) -> None:
        """Every transaction of the server moves the position on, also those that are not captured."""
        if self._stream is not None:
            with self._lock, session.mapped(self._settings):
                self._stream.put_time(*committed(self._control, self._mariadb))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        session.end(self._control)


def bytes_between(sizes: Mapping[str, int], start: tuple[str, int], end: tuple[str, int]) -> int | None:
    """Of the server's files; None where the file of `start` is gone."""
    if start[0] not in sizes:
        return None
    files = sorted(name for name in sizes if file_order(start[0], 0) <= file_order(name, 0) < file_order(end[0], 0))
    return max(0, sum(sizes[name] for name in files) + end[1] - start[1])


def source_schema(connector: str) -> Mapping[str, Any]:
    def of(type_: str, name: str, optional: bool) -> dict[str, Any]:
        return {"type": type_, "optional": optional, "field": name}

    snapshot = {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1}
    snapshot |= {"parameters": {"allowed": _SNAPSHOTS}, "default": "false", "field": "snapshot"}
    texts = [of("string", name, False) for name in ("version", "connector", "name")]
    times = [of("int64", name, True) for name in ("ts_us", "ts_ns")]
    place = [of("int64", "server_id", False), of("string", "gtid", True), of("string", "file", False)]
    place += [of("int64", "pos", False), of("int32", "row", False), of("int64", "thread", True)]
    fields = [*texts, of("int64", "ts_ms", False), snapshot, of("string", "db", False), of("string", "sequence", True)]
    fields += [*times, of("string", "table", True), *place, of("string", "query", True)]
    name = f"io.debezium.connector.{connector}.Source"
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1}
