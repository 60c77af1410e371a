"""PostgreSQL as a source: `connect(url, name, tables)`.

    in the database, by the capture's name:   slot tidelog_NAME
                                              publications tidelog_NAME and tidelog_NAME_inserts

`prepare` makes the publications. The slot is made by `snapshot`, because the snapshot that the server exports with a
new slot is the one way to have rows at exactly the slot's position.

Two kinds of logical messages are ours: `tidelog.watermark` (transactional: it takes its place among commits),
`tidelog.heartbeat` (not transactional: it moves the log on in a database where nothing is written, and tells the
time up to which everything was told). They need no table and no right.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from zlib import crc32

from tidelog import __version__
from tidelog.capture.change import Begin, CheckFinding, Position, RowChange, SourceLag, SourceTable, Values
from tidelog.capture.source import KNOW, READ, WAIT, Newcomer
from tidelog.capture.sources.postgres import checking, partitions, publications, reading
from tidelog.capture.sources.postgres.catalog import Catalog, Known, ListedTable
from tidelog.capture.sources.postgres.pgoutput import lsn_of
from tidelog.capture.sources.postgres.replication import Replication
from tidelog.capture.sources.postgres.session import SqlSession, TableLocked
from tidelog.capture.sources.postgres.slots import AGAIN, ReplicationSlot, lsn_in, resume_fault, slot_of
from tidelog.capture.sources.postgres.snapshot import PostgresSnapshot
from tidelog.capture.sources.postgres.stream import HEARTBEAT, PostgresStream, SlotStream, StreamedTransaction
from tidelog.errors import Disconnected, PeerError, SourceLost, UsageError

log = logging.getLogger(__name__)
NAME_LIMIT = 63 - len("tidelog__inserts")
WATERMARK = "tidelog.watermark"
RELEASE_S = 15.0  # in which a capture that was fenced lets go of its slot
LOCK_MS = 500  # for a table to get into a publication: behind a VACUUM it is tried again

_LAG = """
SELECT pg_wal_lsn_diff(l.now, s.confirmed_flush_lsn)::bigint, pg_wal_lsn_diff(l.now, s.restart_lsn)::bigint,
       s.wal_status, extract(epoch FROM r.flush_lag)::float8
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS now) AS l,
     pg_replication_slots s LEFT JOIN pg_stat_replication r ON r.pid = s.active_pid
WHERE s.slot_name = %s
"""

_OPEN = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() AS s
"""

_END = """
SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                 ELSE pg_current_wal_flush_lsn() END::text
"""


_READER = """
SELECT application_name, usename::text, coalesce(host(client_addr), 'a local socket')
FROM pg_stat_activity WHERE pid = %s
"""

_WRITTEN = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""


def _field(kind: str, name: str, *, optional: bool = True) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


SNAPSHOT_WORDS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
SOURCE_SCHEMA: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        *(_field("string", name, optional=False) for name in ("version", "connector", "name")),
        _field("int64", "ts_ms", optional=False),
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": SNAPSHOT_WORDS},
            "default": "false",
            "field": "snapshot",
        },
        _field("string", "db", optional=False),
        _field("string", "sequence"),
        *(_field("int64", name) for name in ("ts_us", "ts_ns")),
        *(_field("string", name, optional=False) for name in ("schema", "table")),
        *(_field("int64", name) for name in ("txId", "lsn", "xmin")),
        _field("string", "origin"),
        _field("int64", "origin_lsn"),
    ],
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "version": 1,
}


def connect(url: str, name: str, tables: Sequence[str]) -> PostgresSource:
    """`tables` are patterns `schema.table`, in which `*` stands for any part of a name."""
    return PostgresSource(SqlSession(url), plain_name(name), tables)


def plain_name(name: str) -> str:
    """A name that a slot may have: small letters, digits and underscores. Another one gets a sum, so that no two names
    of captures are one slot."""
    if re.fullmatch(rf"[a-z0-9_]{{1,{NAME_LIMIT}}}", name):
        return name
    return f"{re.sub('[^a-z0-9_]', '_', name.lower())[: NAME_LIMIT - 9]}_{crc32(name.encode()):08x}"


class PostgresSource:
    connector = "postgresql"
    source_schema = SOURCE_SCHEMA

    def __init__(self, session: SqlSession, name: str, tables: Sequence[str]) -> None:
        self._session = session
        self.slot = f"tidelog_{name}"
        self._publications = publications.publications_of(name)
        self._catalog = Catalog(session, tables, self._publications)
        self.database = session.database
        self._system: str | None = None
        self._snapshot_lsn = 0
        self._joining: dict[str, int | None] = {}  # new tables, and which transactions must end before they are read
        self._blocks: dict[SourceTable, str] = {}
        self._promoted: set[str] = set()  # of these, the ones whose inserts alone were told
        self._changes: SlotStream | None = None
        self._changed: dict[str, tuple[str, Any]] = {}  # ids of known tables, and what was written when each was seen
        self._refused: set[str] = set()  # new tables that are not ours to publish
        self._outside = StreamedTransaction(0, None)  # of rows that no transaction of the stream told
        self._outside_us = -1

    def check(self) -> Sequence[CheckFinding]:
        return checking.check(self._session, self._catalog, self.slot, self._publications)

    def prepare(self) -> None:
        if not self._catalog.listed():
            raise UsageError("no table matches; a pattern is schema.table, and `*` stands for any part of it")
        slot = slot_of(self._session, self.slot)
        if slot is None or slot.is_lost or not self._unpublished():
            self._publish()

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        """Tables that no publication names, so that their changes are told to nobody; and those that somebody else
        has put into one, or that have another name or key by now."""
        slot = slot_of(self._session, self.slot)
        if slot is None or slot.is_lost or self._unpublished():
            return ()  # more is lost than new tables, which `stream` says
        listed = self._catalog.listed()
        identified = publications.identified(self._session, listed) if listed else set()
        self._spare_writers(listed, identified)
        if any(name not in self._named() for name in self._joining) or self._promoted & self._inserted():
            with suppress(UsageError):
                self._publish()
        there = self._named()
        self._promoted = {one.full_name for one in listed if one.full_name in self._inserted() and one.id in identified}
        inside = partitions.partitions_of(self._session, [one.id for one in listed if one.partitioned])
        found = [
            self._newcomer(each, known, there) or self._repartition(each, known, inside.get(each.id)) for each in listed
        ]
        return [one for one in found if one]

    def _repartition(
        self, listed: ListedTable, known: Mapping[str, str], now: partitions.TablePartitions | None
    ) -> Newcomer | None:
        """Of a table that is told, and whose partitions are others than those whose rows were read. The stream first
        tells what was written before it was seen: a row of a partition that is gone by now may be in it."""
        name, told = listed.full_name, known.get(listed.full_name)
        if now is None or told is None or name in self._joining or told == (id := partitions.id_of(listed.id, now)):
            return None
        read = self._as_read(listed)
        if read is None:
            return None
        table, became = replace(read, id=id), partitions.movements(told, now)
        if not became.came and not became.went:
            return Newcomer(table, False, KNOW)
        if name not in self._changed:
            log.warning("%s", partitions.described(name, became))
        if not self._is_past(name, id):
            return Newcomer(table, False, WAIT)
        return Newcomer(table, bool(became.went and table.key), READ)

    def _is_past(self, name: str, id: str) -> bool:
        """Whether the stream has told all that was written before a table was seen to be this one. What it tells of the
        one before must not come behind the truncate that ends it."""
        if self._changed.get(name, ("",))[0] != id:
            self._changed[name] = id, self._written()
        told = self._is_behind_us(self._changed[name][1])
        if told:
            del self._changed[name]
        return told

    def _written(self) -> Any:
        """Where the log ends; it comes there, and beyond."""
        end = lsn_of(self._session.one(_WRITTEN))
        self.heartbeat()
        return end

    def _is_behind_us(self, written: Any) -> bool:
        return self._changes is not None and self._changes.is_past(written)

    def _spare_writers(self, listed: Sequence[ListedTable], identified: Collection[int]) -> None:
        """Of a table that has lost its key, the server refuses every update as long as updates are published."""
        whole = self._published().get(self._publications[0], frozenset())
        for one in listed:
            if (one.schema, one.name) in whole and one.id not in identified:
                log.warning(
                    "%s has no replica identity any more: from now on its inserts alone are told", one.full_name
                )
                with suppress(UsageError, TableLocked):
                    self._run(publications.moved((one.schema, one.name), *reversed(self._publications)))

    def _newcomer(self, listed: ListedTable, known: Mapping[str, str], named: Collection[str]) -> Newcomer | None:
        missed, told = listed.full_name not in named, known.get(listed.full_name)
        promoted = listed.full_name in self._promoted
        same = told is not None and partitions.number_of(told) in ("", str(listed.id))
        if ((missed or promoted) and listed.full_name in self._joining) or (not missed and not promoted and same):
            return None
        if missed and not (listed.owned and listed.readable):
            if listed.full_name not in self._refused:
                self._refused.add(listed.full_name)
                log.warning(
                    "%s is new and not captured: it belongs to %s; `capture check` says what its owner runs",
                    listed.full_name,
                    listed.owner,
                )
            return None
        table = self._as_read(listed)
        if table is None:
            return None
        if told is not None and table.key and not self._is_past(listed.full_name, str(listed.id)):
            return Newcomer(table, False, WAIT)
        self._changed.pop(listed.full_name, None)
        self._joining[listed.full_name] = None
        return Newcomer(table, missed or (told is not None and bool(table.key)))

    def _as_read(self, listed: ListedTable) -> SourceTable | None:
        known = self._catalog.known_now(listed.id, self._catalog.published_columns(listed))
        return None if known is None else known.table

    def _named(self) -> set[str]:
        """Tables that are in a publication."""
        return {f"{schema}.{name}" for names in self._published().values() for schema, name in names}

    def _inserted(self) -> set[str]:
        """Those whose inserts alone are told."""
        return {f"{schema}.{name}" for schema, name in self._published().get(self._publications[1], frozenset())}

    def _publish(self) -> None:
        left: list[str] = []
        refused: UsageError | None = None
        for statement in publications.needed(self._session, self._catalog, self._publications, self._changed):
            try:
                self._run(statement)
            except UsageError as error:
                left, refused = [*left, statement], refused or error
            except TableLocked as error:
                log.warning("%s: it is tried again: %s", statement, error)
        if refused is not None:
            script = checking.script(left)
            raise UsageError(f"{refused}; let the tables' owner or a superuser run this:\n{script}") from None

    def _run(self, statement: str) -> None:
        try:
            if statement.startswith("ALTER"):  # beside a VACUUM it would wait, and the stream with it
                self._session.query(f"SET lock_timeout = {LOCK_MS}")
            self._session.query(statement)
        finally:
            self._session.query("SET lock_timeout = 0")

    def _unpublished(self) -> list[str]:
        """Publications that are not there. With a slot there, somebody has dropped them, and what was changed since is
        told to nobody: PostgreSQL 18 passes over it in silence. So they are not made anew beside the same slot."""
        there = self._published()
        return [name for name in self._publications if name not in there]

    def _published(self) -> publications.Published:
        return publications.published(self._session, self._publications)

    def snapshot(self) -> PostgresSnapshot:
        if self._unpublished():
            if slot_of(self._session, self.slot) is not None:
                self._session.query("SELECT pg_drop_replication_slot(%s)", [self.slot])
            self._publish()
        taken = PostgresSnapshot(self._session, self._catalog, self.slot, self._identified())
        self._snapshot_lsn = taken.lsn
        return taken

    def stream(self, position: Position) -> PostgresStream:
        start, (standby, end) = lsn_in(position), self._end()
        if standby and end < start:  # it was started anew, and comes to where it was
            raise Disconnected(f"{self._session.address} has not replayed its log up to {position['lsn']} yet")
        fault = resume_fault(
            slot_of(self._session, self.slot), self.slot, position, self._identified(), self._database(), end
        )
        missing = self._unpublished()
        if fault is None and missing:
            fault = f"the publication {missing[0]} is gone, and with it changes after {position['lsn']}; {AGAIN}"
        if fault is not None:
            raise SourceLost(fault)
        replication = Replication(self._session)
        try:
            replication.start(self.slot, start, self._publications)
        except BaseException:
            replication.close()
            raise
        until = max([self._end()[1], *(end for _, end in self._changed.values())])
        self._changes = SlotStream(self._catalog, self._database(), self._identified(), start, until)
        return PostgresStream(replication, self._changes, start)

    def tables(self) -> Sequence[SourceTable]:
        """Those that are captured, as they are now: the objects that rows come with, where the shape is the same."""
        found = [(one, self._catalog.published_columns(one)) for one in self._catalog.listed()]
        known = [self._catalog.known_now(one.id, columns) for one, columns in found]
        return [each.table for each in known if each is not None]

    def chunk(self, table: SourceTable, after: Values | None, to: Values | None, size: int) -> Sequence[Values]:
        self._check_told(table)
        known = self._ranged(table)
        statement = reading.row_select(known, after, to, size, self._catalog.row_filter(table))
        return self._read(statement, known.readers)

    def _check_told(self, table: SourceTable) -> None:
        """A transaction that wrote to a new table before it was published is not told, also where it ends later. So
        the table is read when all transactions of that time have ended."""
        if table.full_name not in self._joining:
            return
        oldest, next_one = self._session.query(_OPEN)[0]
        until = self._joining[table.full_name]
        if until is None:
            if table.full_name not in self._named() or table.full_name in self._promoted & self._inserted():
                raise PeerError(f"{table.full_name} is not in a publication yet")
            until = self._joining[table.full_name] = next_one
        if oldest < until:
            raise PeerError(
                f"{table.full_name} is new, and is read when transactions that are open since before have ended"
            )
        del self._joining[table.full_name]

    def last_key(self, table: SourceTable) -> Values | None:
        self._check_told(table)
        known = self._ranged(table)
        found = self._read(reading.key_select(known, last=True), reading.key_readers(known))
        return found[0] if found else None

    def watermark(self, text: str) -> None:
        self._session.query("SELECT pg_logical_emit_message(true, %s, %s)", [WATERMARK, text])

    def heartbeat(self) -> None:
        clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text"
        emitted = f"pg_logical_emit_message(false, %s, {clock})"
        self._session.query(f"SELECT CASE WHEN NOT pg_is_in_recovery() THEN {emitted} END", [HEARTBEAT])

    def lag(self) -> SourceLag:
        found = self._session.query(_LAG, [self.slot])
        if not found:
            return SourceLag(None, None, None, "gone")
        behind, kept, state, seconds = found[0]
        return SourceLag(behind, 0.0 if behind == 0 else seconds, kept, state or "")

    def remove(self) -> Sequence[str]:
        done = []
        slot = self._unread_slot()
        if slot is not None:
            self._session.query("SELECT pg_drop_replication_slot(%s)", [self.slot])
            done.append(f"dropped the replication slot {self.slot}")
        for name in self._published():
            self._session.query(f"DROP PUBLICATION {reading.name_of(name)}")
            done.append(f"dropped the publication {name}")
        return done

    def _unread_slot(self) -> ReplicationSlot | None:
        """When its reader has ended: one that is fenced finds out at its next commit, and a heartbeat gives it one."""
        deadline = time.monotonic() + RELEASE_S
        while True:
            slot = slot_of(self._session, self.slot)
            if slot is None or slot.active_pid is None:
                return slot
            if time.monotonic() >= deadline:
                break
            self.heartbeat()
            time.sleep(RELEASE_S / 60)
        found = self._session.query(_READER, [slot.active_pid])
        name, user, address = found[0] if found else ("", "", "")
        raise PeerError(
            f"the slot {self.slot} is still being read after {RELEASE_S:g} s, by process {slot.active_pid} of the"
            f" server ({name or 'no name'}, of the user {user} at {address}); stop that capture, and run this again"
        )

    def close(self) -> None:
        self._session.close()

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        transaction = begin.where
        if not isinstance(transaction, StreamedTransaction):
            transaction = self._outside
            if begin.commit_us != self._outside_us:
                self._outside_us, transaction.head = begin.commit_us, None
        if transaction.head is None or transaction.head[0] != snapshot:
            transaction.head = (snapshot, self._head(begin.commit_us, snapshot, name))
        lsn = row.where if row.where is not None else self._snapshot_lsn
        previous = "null" if transaction.previous is None else f'\\"{transaction.previous}\\"'
        us = begin.commit_us
        table = self._blocks.get(row.table) or self._table_part(row.table)
        xid = transaction.xid or "null"
        end = ',"xmin":null,"origin":null,"origin_lsn":null}'
        if transaction.origin is not None:
            end = f',"xmin":null,"origin":{json.dumps(transaction.origin)},"origin_lsn":{transaction.origin_lsn}}}'
        return (
            f'{transaction.head[1]}"sequence":"[{previous},\\"{lsn}\\"]","ts_us":{us},"ts_ns":{us}000,'
            f'{table}"txId":{xid},"lsn":{lsn}{end}'
        )

    def _head(self, commit_us: int, snapshot: str, name: str) -> str:
        return (
            f'{{"version":"{__version__}","connector":"postgresql","name":{json.dumps(name)},'
            f'"ts_ms":{commit_us // 1000},"snapshot":"{snapshot}","db":{json.dumps(self.database)},'
        )

    def _table_part(self, table: SourceTable) -> str:
        part = f'"schema":{json.dumps(table.schema)},"table":{json.dumps(table.name)},'
        self._blocks[table] = part
        return part

    def _identified(self) -> str:
        """The server's own identifier."""
        if self._system is None:
            self._system = str(self._session.one("SELECT system_identifier::text FROM pg_control_system()"))
        return self._system

    def _end(self) -> tuple[bool, int]:
        """Whether the server is a standby, and where its log ends."""
        ((standby, end),) = self._session.query(_END)
        return standby, lsn_of(end)

    def _database(self) -> str:
        self.database = str(self._session.one("SELECT current_database()::text"))
        return self.database

    def _ranged(self, table: SourceTable) -> Known:
        try:
            known = self._catalog.known_table(table)
        except LookupError:
            raise UsageError(f"{table.full_name} is gone, or is not captured") from None
        if not reading.has_ranges(known):
            raise UsageError(f"{table.full_name} has no key by which it can be read in parts; take a whole snapshot")
        return known

    def _read(self, statement: str, readers: Any) -> list[Values]:
        connection = self._session.opened()
        with connection.lock:  # COPY goes past psycopg, and a heartbeat may come from another thread
            lines = list(reading.copied(self._session, connection, statement))
        return [reading.values_of(line, readers) for line in lines]
