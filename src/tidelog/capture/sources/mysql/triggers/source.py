"""MySQL or MariaDB as a source, by triggers: `connect(url, name, tables)`. For a server whose binlog we may not read.

    on the server, by the capture's name:   database _tidelog_NAME (`statements.py`), three triggers of each table

    prepare     makes them (`installing.py`)
    snapshot    one connection with a consistent view; the position is what of the changes that view has
    stream      what later looks have and this one has not (`changelog.py`, `seen.py`)
    confirm     deletes changes that are stored in the log
    remove      drops triggers and database

Values, keys and tables are those of the binlog's reader. These differ: which changes were one transaction is not known,
but no transaction is split; `gtid` is null, `file` is empty and `pos` is the number of the change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from json.encoder import encode_basestring
from typing import Any
from zlib import crc32

from tidelog import __version__
from tidelog.capture.change import Begin, CheckFinding, Position, RowChange, SourceLag
from tidelog.capture.source import Newcomer
from tidelog.capture.sources.mysql import session
from tidelog.capture.sources.mysql.session import MysqlSettings, query
from tidelog.capture.sources.mysql.shapes import Shapes
from tidelog.capture.sources.mysql.snapshot import BinlogSnapshot
from tidelog.capture.sources.mysql.source import MySqlSource
from tidelog.capture.sources.mysql.triggers import checking, installing
from tidelog.capture.sources.mysql.triggers.changelog import GapChangelog, LoggedRows
from tidelog.capture.sources.mysql.triggers.rows import logged_rows, table_of
from tidelog.capture.sources.mysql.triggers.seen import SeenNumbers, after, unseen
from tidelog.capture.sources.mysql.triggers.statements import OURS, MysqlNames
from tidelog.errors import SourceLost, TidelogError, UsageError

NAME_LIMIT = 64 - len(f"{OURS}!00000000_i")
AGAIN = "take a new snapshot: run capture with `--snapshot when_needed`"
_VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


def connect(url: str, name: str, tables: Sequence[str]) -> MysqlTriggerSource:
    return MysqlTriggerSource(session.settings(url), name, tables)


def plain_name(name: str) -> str:
    """A name that a database may have whatever the server's file system is. Another one gets a sum."""
    if re.fullmatch(rf"[a-z0-9_]{{1,{NAME_LIMIT}}}", name):
        return name
    return f"{re.sub('[^a-z0-9_]', '_', name.lower())[: NAME_LIMIT - 9]}_{crc32(name.encode()):08x}"


class MysqlTriggerSource(MySqlSource):
    def __init__(self, wanted: MysqlSettings, name: str, tables: Sequence[str]) -> None:
        super().__init__(wanted, name, tables)
        self._names = MysqlNames(plain_name(name))
        self._logged: dict[int, LoggedRows] = {}
        self._changelog: GapChangelog | None = None

    def check(self) -> Sequence[CheckFinding]:
        patterns = [pattern if "." in pattern else f"{self.database}.{pattern}" for pattern in self._patterns]
        with self._lock, session.mapped(self._settings):
            return checking.check(self._control, self._settings, self._shapes, patterns, self._names, self._mariadb)

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        return ()  # their rows are logged when they get their triggers

    def prepare(self) -> None:
        self._install(frozenset())

    def _install(self, lost: frozenset[int]) -> None:
        with self._lock, session.mapped(self._settings):
            if not self._shapes.load(self._control):
                raise UsageError("no table matches the capture's tables; name them as database.table")
            installing.install(self._control, self._names, self._shapes, lost)

    def remove(self) -> Sequence[str]:
        with self._lock, session.mapped(self._settings):
            return installing.remove(self._control, self._names)

    # Reading ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> BinlogSnapshot:
        return TriggerLogSnapshot(self._settings, self._shapes, self._mariadb, self._names, self._log())

    def stream(self, position: Position) -> GapChangelog:  # type: ignore[override]
        log = self._log()
        with self._lock, session.mapped(self._settings):
            found = query(
                self._control,
                "SELECT AUTO_INCREMENT FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'changes'",
                [self._names.database],
            )
        following = int(found[0][0] or 1) if found else 0
        if position.get("log") != log or int(position.get("id", 0)) >= following:
            raise SourceLost(
                f"{self._settings.shown} does not have the changes after {dict(position)}: its log of changes is"
                f" {log!r}, up to {following - 1}; the database was restored, or the capture's triggers were removed:"
                f" {AGAIN}"
            )
        self._changelog = GapChangelog(self._settings, self._names, log, position, self._shape, self._bring_in_step)
        return self._changelog

    def watermark(self, text: str) -> None:
        if self._changelog is None:
            raise UsageError("a watermark is given back by a stream, and this source has no stream open")
        self._changelog.put_watermark(text)

    def _see_all(self) -> None:
        query(self._control, _VIEW)

    def lag(self) -> SourceLag:
        if self._changelog is None:
            return SourceLag(None, None, None)
        with self._lock, session.mapped(self._settings):
            ((seconds,),) = query(
                self._control,
                f"SELECT UNIX_TIMESTAMP(NOW(6)) - UNIX_TIMESTAMP(MIN(at)) FROM {self._names.changes}"
                f" WHERE {unseen(self._changelog.seen)}",
            )
            sizes = query(
                self._control,
                "SELECT DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES"
                " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'changes'",
                [self._names.database],
            )
        return SourceLag(None, max(0.0, float(seconds or 0)), int(sizes[0][0] or 0) if sizes else None)

    def heartbeat(self) -> None:
        if self._changelog is not None:
            self._changelog.beat()

    def close(self) -> None:
        stream, self._changelog = self._changelog, None
        if stream is not None:
            with suppress(TidelogError):  # what is left is deleted at the next start
                stream.close()
        super().close()

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        number, at_us = row.where if isinstance(row.where, tuple) else (0, begin.commit_us)
        return (
            f'{{"version":"{__version__}","connector":"{self.connector}","name":{encode_basestring(name)},'
            f'"ts_ms":{at_us // 1000},"snapshot":"{snapshot}","db":{encode_basestring(row.table.schema)},'
            f'"sequence":null,"ts_us":{at_us},"ts_ns":{at_us}000,'
            f'"table":{encode_basestring(row.table.name)},"server_id":0,"gtid":null,'
            f'"file":"","pos":{number},"row":0,"thread":null,"query":null}}'
        )

    # Within -----------------------------------------------------------------------------------------------------------

    def _log(self) -> str:
        with self._lock, session.mapped(self._settings):
            if not installing.is_installed(self._control, self._names):
                raise SourceLost(f"the log of changes {self._names.database} is gone; {AGAIN}")
            found = query(self._control, f"SELECT log FROM {self._names.state}")
        return str(found[0][0]) if found else ""

    def _bring_in_step(self, lost: frozenset[int]) -> None:
        self._log()
        self._install(lost)

    def _shape(self, number: int) -> LoggedRows | None:
        known = self._logged.get(number)
        if known is None:
            with self._lock, session.mapped(self._settings):
                found = query(
                    self._control, f"SELECT db, name, described FROM {self._names.shapes} WHERE shape = %s", [number]
                )
            if not found:
                return None
            known = self._logged[number] = logged_rows(self._shapes.same(table_of(*found[0])))
        return known


class TriggerLogSnapshot(BinlogSnapshot):
    """By one connection: several that see the same would need a lock on the whole server."""

    def __init__(self, wanted: MysqlSettings, shapes: Shapes, mariadb: bool, names: MysqlNames, log: str) -> None:
        self._names, self._log = names, log
        super().__init__(wanted, shapes, mariadb)

    def _open(self, mariadb: bool) -> Position:
        from pymysql.cursors import SSCursor

        connection: Any = self._connect()
        self._connections = [connection]
        query(connection, _VIEW)
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT id FROM {self._names.changes} ORDER BY id")
            seen = after(SeenNumbers(), (int(number) for (number,) in cursor))
        return {"log": self._log, **seen.to_fields()}
