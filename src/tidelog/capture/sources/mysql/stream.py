"""The binlog as events of capture: transactions in commit order, from a position on.

    GTID -> [QUERY 'BEGIN'] -> (TABLE_MAP, rows)* -> XID | QUERY 'COMMIT'    a transaction
    GTID (standalone) -> QUERY                                                a statement of its own: CREATE TABLE, ...

Rules:
- `Begin` comes with the first row that is captured; a transaction without any only moves the position (`Idle`).
- Memory is bounded by one event of the binlog (8 KB, or one large row) and by what `read` was asked for.
- A row is where its event is: (timestamp, server, file, offset of the event, place in it).
- What cannot be told rightly ends the stream: a row image that is not full, a row change that was logged as a
  statement, a rollback behind rows that were sent, a prepared XA transaction. Nothing is passed over in silence.
- What was committed when the stream began counts as there: until it is read, `read` waits for it (BEHIND_SECONDS at
  most), so that nothing, or an Idle, means that the end was reached.
- The time of a transaction is its GTID event's, which is in whole seconds on MariaDB.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidelog.capture.change import (
    CREATE,
    DELETE,
    TRUNCATE,
    UPDATE,
    Begin,
    Commit,
    Event,
    Idle,
    Message,
    Position,
    RowChange,
    SchemaChange,
    Values,
)
from tidelog.capture.sources.mysql import binlog, session, table_map
from tidelog.capture.sources.mysql.ends import committed, file_order
from tidelog.capture.sources.mysql.packed import Reader
from tidelog.capture.sources.mysql.positions import gtids, position
from tidelog.capture.sources.mysql.replica import Replica
from tidelog.capture.sources.mysql.session import MysqlSettings
from tidelog.capture.sources.mysql.shapes import Mapped, Shapes, collations
from tidelog.capture.sources.mysql.statements import Effect, effect
from tidelog.errors import PeerError, SourceLost

IDLE_SECONDS = 1.0  # between two questions to the server whether there is more
BEHIND_SECONDS = 5.0
TIMES_KEPT = 100
IDLE_GROUPS = 1000  # transactions without a captured row, after which the position is told
WATERMARK = "tidelog.watermark"
_log = logging.getLogger(__name__)


class BinlogPlace(NamedTuple):
    """Where a row stands, for its `source` block."""

    timestamp: int
    server_id: int
    file: str
    pos: int
    row: int


class EventGroup:
    """One transaction while it is read."""

    def __init__(self, gtid: str, commit_us: int, standalone: bool) -> None:
        self.gtid = gtid
        self.commit_us = commit_us
        self.standalone = standalone
        self.begun = False


class BinlogStream:
    def __init__(self, wanted: MysqlSettings, name: str, shapes: Shapes, start: Position, mariadb: bool) -> None:
        self._settings, self._shapes, self._mariadb = wanted, shapes, mariadb
        self._gtids = gtids(start["gtid"], mariadb) if start["gtid"] is not None else None
        self._file: str = start["file"]
        self._pos: int = start["pos"]
        self._told = dict(start)  # the last position that was given away
        self._quiet_groups = 0
        self._at_us = 0
        self.last_timestamp = 0
        self._asked = 0.0
        self._group: EventGroup | None = None
        self._maps: dict[int, Mapped | None] = {}
        self._by_bytes: dict[bytes, Mapped] = {}
        self._out: deque[Event] = deque()
        self._watermarks: deque[tuple[str, str]] = deque()  # what the server had committed, and the text
        self._times: deque[tuple[str, int]] = deque(maxlen=TIMES_KEPT)  # the same, and when that was
        self._control = session.connect(wanted)
        try:
            with session.mapped(wanted):
                self._charsets: Mapping[int, str] = collations(self._control)
                _, self._until = committed(self._control, mariadb)
            self._replica = Replica(wanted, name, start, mariadb)
        except BaseException:
            session.end(self._control)
            raise
        self._checksum = self._replica.checksum
        self._handlers = self._table_of_handlers()

    # What the core calls --------------------------------------------------------------------------------------------

    def read(self, limit: int, wait_s: float) -> Sequence[Event]:
        begun, behind = time.monotonic(), self._is_behind()
        deadline = begun + (max(wait_s, BEHIND_SECONDS) if behind else wait_s)
        self._tell_watermarks()
        while len(self._out) < limit:
            data = self._replica.event(0.0 if self._out else max(deadline - time.monotonic(), 0.0))
            if behind and not self._is_behind():  # the last that was waited for may be one that tells nothing
                behind, deadline = False, begun + wait_s
            if data is None:
                if not self._out:
                    self._tell_idle()
                break
            self._take(data)
        return [self._out.popleft() for _ in range(min(limit, len(self._out)))]

    def _is_behind(self) -> bool:
        if self._until and self.has_read(self._until):
            self._until = ""
        return bool(self._until)

    def confirm(self, position: Position) -> None:
        """The server keeps its binlog by time and size alone; there is nothing to tell it."""

    def close(self) -> None:
        self._replica.close(self._control)
        session.end(self._control)

    @property
    def position(self) -> Position:
        return position(self._gtids.text() if self._gtids else None, self._file, self._pos)

    def put_watermark(self, head: str, text: str) -> None:
        """Gives it back as a Message between two transactions, once all of `head` has been read. From any thread."""
        self._watermarks.append((head, text))

    def put_time(self, at_us: int, head: str) -> None:
        """Tells the time between two transactions, once all of `head` has been read."""
        self._times.append((head, at_us))

    # Events of the binlog -------------------------------------------------------------------------------------------

    def _table_of_handlers(self) -> dict[int, Callable[[binlog.BinlogEvent], None]]:
        handlers: dict[int, Callable[[binlog.BinlogEvent], None]] = {
            binlog.ROTATE: self._rotate,
            binlog.MARIADB_GTID: self._mariadb_gtid,
            binlog.GTID: self._mysql_gtid,
            binlog.ANONYMOUS_GTID: self._mysql_gtid,
            binlog.TABLE_MAP: self._table_map,
            binlog.QUERY: self._query,
            binlog.QUERY_COMPRESSED: self._query,
            binlog.XID: self._commit,
            binlog.XA_PREPARE: self._xa_prepare,
            binlog.PARTIAL_UPDATE: self._refuse("a part of a JSON value; SET GLOBAL binlog_row_value_options = ''"),
            binlog.TRANSACTION_PAYLOAD: self._refuse(
                "a compressed transaction; SET GLOBAL binlog_transaction_compression = OFF"
            ),
            binlog.EXECUTE_LOAD: self._refuse("LOAD DATA as a statement; SET GLOBAL binlog_format = 'ROW'"),
            binlog.INCIDENT: self._refuse("an incident: the server lost events of its own"),
        }
        return handlers | dict.fromkeys(binlog.ROWS, self._rows)

    def _take(self, data: bytes) -> None:
        kind = binlog.type_of(data)
        if kind == binlog.FORMAT_DESCRIPTION:
            self._checksum = binlog.has_checksums(data)
            self._forget_tables()
            return
        if kind in self._handlers:
            event = binlog.split(data, self._checksum)
            self.last_timestamp = event.timestamp or self.last_timestamp
            self._handlers[kind](event)
        elif not binlog.may_be_left_out(data):
            self._refuse(f"an event of the type {kind}, which is not known")(binlog.split(data, self._checksum))

    def _rotate(self, event: binlog.BinlogEvent) -> None:
        self._file, self._pos = binlog.rotate(event.body)
        self._forget_tables()

    def _forget_tables(self) -> None:
        self._maps.clear()
        self._by_bytes.clear()

    def _mariadb_gtid(self, event: binlog.BinlogEvent) -> None:
        gtid, flags = binlog.mariadb_gtid(event)
        if flags & binlog.PREPARED_XA:
            self._refuse("a prepared XA transaction, whose end is not known when it is read")(event)
        self._begin_group(gtid, event.timestamp * 1_000_000, bool(flags & binlog.STANDALONE))

    def _mysql_gtid(self, event: binlog.BinlogEvent) -> None:
        gtid, committed_us = binlog.mysql_gtid(event)
        if self._gtids is None:
            gtid = f"file={self._file},pos={event.start}"
        # It stands alone unless a BEGIN follows.
        self._begin_group(gtid, committed_us or event.timestamp * 1_000_000, True)

    def _xa_prepare(self, event: binlog.BinlogEvent) -> None:
        if not event.body[0]:
            self._refuse("a prepared XA transaction, whose end is not known when it is read")(event)
        self._commit(event)  # in one phase

    def _begin_group(self, gtid: str, commit_us: int, standalone: bool) -> None:
        if self._group is not None and self._group.begun:
            raise PeerError(f"the binlog has the transaction {gtid} inside of {self._group.gtid}")
        self._group = EventGroup(gtid, commit_us, standalone)

    def _commit(self, event: binlog.BinlogEvent) -> None:
        self._pos = event.end
        group, self._group = self._group, None
        if group is None:
            return
        if self._gtids is not None:
            self._gtids.add(group.gtid)
        if group.begun:
            self._out.append(Commit(self._tell(), group.commit_us))
        else:
            self._quiet_groups += 1
            if self._quiet_groups >= IDLE_GROUPS:
                self._out.append(Idle(self._tell(), self._at_us))
        self._tell_watermarks()

    def _tell(self) -> Position:
        self._quiet_groups = 0
        self._told = dict(self.position)
        return self._told

    def _begin(self) -> EventGroup:
        """Of the transaction that is read; told once."""
        group = self._group
        if group is None:
            raise PeerError(f"the binlog has rows outside of a transaction at {self._file}:{self._pos}")
        if not group.begun:
            group.begun = True
            self._out.append(Begin(group.gtid, group.commit_us))
        return group

    # Rows -----------------------------------------------------------------------------------------------------------

    def _table_map(self, event: binlog.BinlogEvent) -> None:
        number, database, table = table_map.names_of(event.body)
        if not self._shapes.wants(database, table):
            self._maps[number] = None
            return
        shape = event.body[8:]
        mapped = self._by_bytes.get(shape)
        if mapped is None:
            with session.mapped(self._settings):
                of = table_map.decode(event.body, self._charsets, self._mariadb)
                mapped = self._shapes.mapped(self._control, of)
            self._by_bytes[shape] = mapped
        self._maps[number] = mapped

    def _rows(self, event: binlog.BinlogEvent) -> None:
        number = int.from_bytes(event.body[:6], "little")
        if number == binlog.NO_TABLE:
            return
        if number not in self._maps:
            raise PeerError(f"the binlog has rows of the table {number} without its description, at {self._at(event)}")
        mapped = self._maps[number]
        if mapped is None:
            return
        rows = binlog.rows(event)
        if not rows.full:
            raise SourceLost(
                f"the binlog has rows of {mapped.table.full_name} without all of their columns, at {self._at(event)}; "
                "SET GLOBAL binlog_row_image = 'FULL', have clients connect again, and take a new snapshot"
            )
        self._begin()
        self._tell_rows(event, mapped, rows.data)

    def _tell_rows(self, event: binlog.BinlogEvent, mapped: Mapped, data: bytes) -> None:
        table, readers = mapped
        at, row, tell = 0, 0, self._out.append
        while at < len(data):
            where = BinlogPlace(event.timestamp, event.server_id, self._file, event.start, row)
            first, at = image(readers, data, at)
            if event.type in binlog.UPDATES:
                second, at = image(readers, data, at)
                tell(RowChange(table, UPDATE, first, second, where))
            elif event.type in binlog.WRITES:
                tell(RowChange(table, CREATE, None, first, where))
            else:
                tell(RowChange(table, DELETE, first, None, where))
            row += 1

    # Statements -----------------------------------------------------------------------------------------------------

    def _query(self, event: binlog.BinlogEvent) -> None:
        database, text = binlog.query(event)
        does = effect(text, database)
        if does.verb in {"begin", "savepoint"}:
            if self._group is not None and does.verb == "begin":
                self._group.standalone = False
        elif does.verb == "commit":
            self._commit(event)
        elif does.verb in {"rollback", "rollback_to"}:
            self._roll_back(event, does.verb)
        else:
            self._act(event, does, database, text)

    def _act(self, event: binlog.BinlogEvent, does: Effect, database: str, text: str) -> None:
        if does.verb == "rows":
            self._refuse_statement(event, database, text)
        if does.verb == "truncate":
            self._truncate(event, does.tables[0])
        if self._group is None or self._group.standalone:
            self._commit(event)
        if does.verb in {"table", "database"}:
            self._change_tables(does, text)

    def _roll_back(self, event: binlog.BinlogEvent, verb: str) -> None:
        if self._group is not None and self._group.begun:
            raise SourceLost(
                f"the transaction {self._group.gtid} was rolled back after its rows were in the binlog, at "
                f"{self._at(event)}: it changed tables with and without transactions; "
                "make them InnoDB, and take a new snapshot"
            )
        if verb == "rollback":
            self._commit(event)

    def _refuse_statement(self, event: binlog.BinlogEvent, database: str, text: str) -> None:
        """A change of rows without the rows. Of a database that is not captured it does not matter."""
        shown = " ".join(text.split())[:200]
        if self._shapes.names_database(database) or self._shapes.named_in(text):
            raise SourceLost(
                f"the binlog has a change of rows as a statement, at {self._at(event)}: {shown}; "
                "SET GLOBAL binlog_format = 'ROW', have clients connect again, and take a new snapshot"
            )
        _log.warning("the binlog has a change of rows as a statement, of a database that is not captured: %s", shown)

    def _truncate(self, event: binlog.BinlogEvent, name: tuple[str, str]) -> None:
        if not self._wants(name):
            return
        table = self._shapes.last(*name)
        if table is None:
            with session.mapped(self._settings):
                table = self._shapes.now(self._control, *name)
        if table is not None:  # one that never had a row that was told, and is gone by now
            self._begin()
            where = BinlogPlace(event.timestamp, event.server_id, self._file, event.start, 0)
            self._out.append(RowChange(table, TRUNCATE, None, None, where))

    def _change_tables(self, does: Effect, text: str) -> None:
        """Between two transactions, at the position behind the statement; or in one, for CREATE TABLE ... SELECT."""
        self._forget_tables()
        touched = dict.fromkeys(name for name in (*does.tables, *does.gone) if self._wants(name))
        for name in touched:
            with session.mapped(self._settings):
                table = self._shapes.now(self._control, *name) if name in does.tables else None
            if self._group is not None:
                self._begin()
            at = self._tell() if self._group is None else self.position
            replaced = (".".join(name),) if does.anew or name in does.gone else ()
            self._out.append(SchemaChange(table, name[0], name[0], text, at, replaced))
            if does.unlogged:
                _log.warning("rows of %s.%s changed without row events; take a snapshot of it: %s", *name, text)
        if touched and self._group is None:  # so that it is not told again, and tables are not read again for it
            self._out.append(Idle(self._tell(), self._at_us))

    def _wants(self, name: tuple[str, str]) -> bool:
        database, table = name
        return self._shapes.wants(database, table) if table else self._shapes.names_database(database)

    def _refuse(self, what: str) -> Callable[[binlog.BinlogEvent], None]:
        def refuse(event: binlog.BinlogEvent) -> None:
            raise SourceLost(f"the binlog has {what}, at {self._at(event)}; then take a new snapshot")

        return refuse

    def _at(self, event: binlog.BinlogEvent) -> str:
        return f"{self._file}:{event.start}"

    # Nothing to read ------------------------------------------------------------------------------------------------

    def _tell_idle(self) -> None:
        """Asks the server what it has committed and when that was: what was read since then is all of it."""
        now = time.monotonic()
        if self._group is not None or now - self._asked < IDLE_SECONDS:
            return
        self._asked = now
        with session.mapped(self._settings):
            at_us, head = committed(self._control, self._mariadb)
        if self.has_read(head):
            self._at_us = at_us
            self._out.append(Idle(self._tell(), at_us))

    def has_read(self, head: str) -> bool:
        if self._gtids is not None:
            return self._gtids.covers(head)
        file, _, pos = head.rpartition(":")
        return file_order(self._file, self._pos) >= file_order(file, int(pos))

    def _tell_watermarks(self) -> None:
        while self._watermarks and self._group is None and self.has_read(self._watermarks[0][0]):
            self._out.append(Message(WATERMARK, self._watermarks.popleft()[1].encode(), False))
        while self._times and self._group is None and self.has_read(self._times[0][0]):
            self._at_us = max(self._at_us, self._times.popleft()[1])
            self._out.append(Idle(self._tell(), self._at_us))


def image(readers: tuple[Reader, ...], data: bytes, at: int) -> tuple[Values, int]:
    """One row, and the position behind it: a bit for each column that is NULL, then the values of the others."""
    width = (len(readers) + 7) // 8
    nulls = int.from_bytes(data[at : at + width], "little")
    at += width
    values = []
    for read in readers:
        if nulls & 1:
            values.append("null")
        else:
            text, at = read(data, at)
            values.append(text)
        nulls >>= 1
    return tuple(values), at
