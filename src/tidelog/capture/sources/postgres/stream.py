"""The changes of a slot as events, from a position on.

    between    no transaction is open; keepalives and heartbeats tell `Idle` here, and only here
    inside     from Begin to Commit

- Events are the server's, in its order: transactions whole and in the order of their commits (protocol version 1).
  Nothing is left out by its LSN.
- The server is told a position only when `confirm` was called with it (or `stream` was begun there): then the log has
  it. It hears from us when it asks, and every STATUS_S while nothing comes: a sender that has missed
  the wake-up by a commit sleeps for ten seconds (seen on PostgreSQL 18), and a word of ours wakes it.
- A message that is not transactional is a place to go on from: its LSN is where its record ends.
- `Idle` says the time up to which all is told. The clock of a keepalive does not, for the server may be far behind with
  sending when it writes one. What does is a heartbeat of ours: its text is the server's clock when it was written.
- What was in the server's log when the stream began counts as there: until it is told, `read` waits for it (BEHIND_S at
  most) and tells no `Idle`, so that nothing, or an Idle, means that the end was reached.
- A table whose relation message is not of the shape that was known is a `SchemaChange`, before its next row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

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
)
from tidelog.capture.sources.postgres import pgoutput
from tidelog.capture.sources.postgres.catalog import Catalog, Known
from tidelog.capture.sources.postgres.pgoutput import HEADER, MalformedChange
from tidelog.capture.sources.postgres.replication import Replication
from tidelog.capture.sources.postgres.slots import lsn_in, position_of

STATUS_S = 0.5
BEHIND_S = 5.0
HEARTBEAT = "tidelog.heartbeat"


class StreamedTransaction:
    """What `source_block` wants to see of one. Its origin is told after its Begin."""

    __slots__ = ("head", "origin", "origin_lsn", "previous", "xid")

    def __init__(self, xid: int, previous: int | None) -> None:
        self.xid = xid
        self.previous = previous  # where the transaction before it ended
        self.origin: str | None = None
        self.origin_lsn: int | None = None
        self.head: tuple[str, str] | None = None  # texts that its rows share


class SlotStream:
    """Copy data to events. It owns no connection: recorded bytes will do."""

    def __init__(self, catalog: Catalog, database: str, system: str, start: int, until: int = 0) -> None:
        self._catalog = catalog
        self._database = database
        self._system = system
        self._tables: dict[int, Known | None] = {}  # None: a table that is not captured
        self._transaction: StreamedTransaction | None = None
        self._told_us = 0  # everything that was committed before is told
        self._end = start
        self._until = until  # where the server's log ended when the stream began
        self._previous = start  # where the last transaction ended
        self._takes: dict[int, Callable[[bytes, list[Event]], None]] = {
            pgoutput.BEGIN: self._begin,
            pgoutput.COMMIT: self._commit,
            pgoutput.ORIGIN: self._origin,
            pgoutput.RELATION: self._relation,
            pgoutput.TYPE: lambda data, events: None,
            pgoutput.TRUNCATE: self._truncate,
            pgoutput.MESSAGE: self._message,
            pgoutput.INSERT: self._insert,
            pgoutput.UPDATE: self._update,
            pgoutput.DELETE: self._delete,
        }

    def is_past(self, lsn: int) -> bool:
        return self._end >= lsn

    @property
    def is_behind(self) -> bool:
        return self._end < self._until

    def take(self, data: bytes, events: list[Event]) -> None:
        """One copy data of the kind 'w'."""
        try:
            self._takes[data[HEADER]](data, events)
        except pgoutput.FAULTS as error:
            kind = chr(data[HEADER]) if len(data) > HEADER else ""
            raise MalformedChange(f"a change of the kind {kind!r} cannot be read: {error!r}") from error

    def idle(self, end: int, events: list[Event]) -> None:
        """Nothing before `end` is still to be sent, unless it is of a transaction that is being sent."""
        if self._transaction is not None or end <= self._end:
            return
        self._end = end
        if self.is_behind:
            return
        if events and type(events[-1]) is Idle:
            events.pop()
        events.append(Idle(position_of(end, self._system), self._told_us))

    def _begin(self, data: bytes, events: list[Event]) -> None:
        told = pgoutput.begin(data, HEADER)
        if self._transaction is not None:
            raise MalformedChange(f"transaction {told.xid} begins inside of {self._transaction.xid}")
        self._transaction = StreamedTransaction(told.xid, self._previous)
        events.append(Begin(f"{told.xid}:{told.commit_lsn}", told.commit_us, self._transaction))

    def _commit(self, data: bytes, events: list[Event]) -> None:
        told = pgoutput.commit(data, HEADER)
        if self._transaction is None:
            raise MalformedChange("a transaction ends that has not begun")
        self._transaction = None
        self._end = self._previous = told.end_lsn
        events.append(Commit(position_of(told.end_lsn, self._system), told.commit_us))

    def _origin(self, data: bytes, events: list[Event]) -> None:
        lsn, name = pgoutput.origin(data, HEADER)
        if self._transaction is None:
            raise MalformedChange("an origin is told outside of a transaction")
        self._transaction.origin, self._transaction.origin_lsn = name, lsn

    def _relation(self, data: bytes, events: list[Event]) -> None:
        relation = pgoutput.relation(data, HEADER)
        if not self._catalog.matches(relation.schema, relation.name):
            self._tables[relation.id] = None
            return
        known, changed = self._catalog.known(relation)
        self._tables[relation.id] = known
        if changed:
            position = position_of(self._end, self._system)
            events.append(SchemaChange(known.table, self._database, relation.schema, None, position))

    def _insert(self, data: bytes, events: list[Event]) -> None:
        known = self._tables[pgoutput.relation_id(data, HEADER)]
        if known is not None:
            values = pgoutput.insert(data, HEADER, known.readers)
            events.append(RowChange(known.table, CREATE, None, values, pgoutput.written_at(data)))

    def _update(self, data: bytes, events: list[Event]) -> None:
        known = self._tables[pgoutput.relation_id(data, HEADER)]
        if known is not None:
            before, _, after = pgoutput.update(data, HEADER, known.readers)
            events.append(RowChange(known.table, UPDATE, before, after, pgoutput.written_at(data)))

    def _delete(self, data: bytes, events: list[Event]) -> None:
        known = self._tables[pgoutput.relation_id(data, HEADER)]
        if known is not None:
            before, _ = pgoutput.delete(data, HEADER, known.readers)
            events.append(RowChange(known.table, DELETE, before, None, pgoutput.written_at(data)))

    def _truncate(self, data: bytes, events: list[Event]) -> None:
        lsn = pgoutput.written_at(data)
        for number in pgoutput.truncate(data, HEADER).relations:
            known = self._tables[number]
            if known is not None:
                events.append(RowChange(known.table, TRUNCATE, None, None, lsn))

    def _message(self, data: bytes, events: list[Event]) -> None:
        told = pgoutput.message(data, HEADER)
        if told.prefix == HEARTBEAT and not told.transactional:
            self._told_us = max(self._told_us, int(told.content or b"0"))
            self.idle(told.lsn, events)
            return
        events.append(Message(told.prefix, told.content, told.transactional, told.lsn))
        if not told.transactional and self._transaction is None:  # or it would be told again after a restart
            self._end = max(self._end, told.lsn)
            events.append(Idle(position_of(self._end, self._system), self._told_us))


class PostgresStream:
    def __init__(self, replication: Replication, changes: SlotStream, start: int) -> None:
        self._replication = replication
        self._changes = changes
        self._confirmed = start
        self._status_at = time.monotonic()

    def read(self, limit: int, wait_s: float) -> Sequence[Event]:
        events: list[Event] = []
        deadline = time.monotonic() + (max(wait_s, BEHIND_S) if self._changes.is_behind else wait_s)
        receive, take = self._replication.receive, self._changes.take
        while len(events) < limit:
            data = receive()
            if data is None:
                left = 0.0 if events else deadline - time.monotonic()
                self._report()
                if not self._replication.wait(min(left, STATUS_S)) and (events or left <= STATUS_S):
                    break
            elif data[0] == pgoutput.DATA:
                take(data, events)
            elif data[0] == pgoutput.KEEPALIVE:
                self._keepalive(data, events)
            else:
                raise MalformedChange(f"copy data of the kind {data[0]} came")
        return events

    def confirm(self, position: Position) -> None:
        self._confirmed = max(self._confirmed, lsn_in(position))
        self._send()

    def close(self) -> None:
        self._replication.close()

    def _keepalive(self, data: bytes, events: list[Event]) -> None:
        told = pgoutput.keepalive(data)
        if told.reply:
            self._send()
        self._changes.idle(told.end, events)

    def _report(self) -> None:
        """While nothing comes the server is asked how far it is: what others write moves our position on, too."""
        if time.monotonic() - self._status_at >= STATUS_S:
            self._send(reply=True)

    def _send(self, *, reply: bool = False) -> None:
        self._status_at = time.monotonic()
        self._replication.send(pgoutput.status(self._confirmed, time.time_ns() // 1000, reply=reply))
