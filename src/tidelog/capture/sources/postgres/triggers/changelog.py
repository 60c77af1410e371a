"""Reading the table of changes: a stream of events, transaction by transaction.

A *batch* is every transaction that the snapshot of one look has and the one before has not (`seen.py`). In a batch,
transactions come in the order of their last change's id, and the changes of each in the order of their ids.

- Changes of one row are in their order. The second writer of a row waits for the first one to end. So the first is in
  the same batch or an earlier one, and all of its ids are lower than the id of the second's change.
- A transaction is whole in one batch, since a snapshot has all of it or nothing.
- A watermark comes after the transactions that its writer's snapshot had, and before the others of its batch. So what
  a chunk did not see comes behind its low watermark, and what it saw before its high one.
- A small batch is given by one `read`. A larger one begins with an Idle whose position names its end, so that after a
  restart in the middle of it the same transactions come in the same order.

What is confirmed is deleted, a stretch at a time, when all of its batch is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

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
from tidelog.capture.sources.postgres.pgoutput import lsn_of
from tidelog.capture.sources.postgres.session import SqlSession
from tidelog.capture.sources.postgres.triggers.functions import PostgresNames
from tidelog.capture.sources.postgres.triggers.lasting import LastingNumbers, write_down
from tidelog.capture.sources.postgres.triggers.rows import LoggedShape
from tidelog.capture.sources.postgres.triggers.seen import LogIdentity, Place, SeenSnapshot, place_in, seen_of
from tidelog.errors import Disconnected, PeerError, SourceLost

WATERMARK = "tidelog.watermark"
FIRST_SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.01
PURGE_EVERY_S = 2.0
PURGE_ROWS = 20_000
IN_STEP_EVERY_S = 10.0
LISTED = 1_000  # transactions of a large batch that are asked for at a time
BEATS_KEPT = 1_000

_COLUMNS = (
    "c.id, c.xid::text::bigint AS x, (extract(epoch FROM c.at) * 1000000)::bigint AS us, c.rel::bigint AS rel, c.sig,"
    " c.shape, c.op::text AS op, c.before, c.after"
)
Change = tuple[Any, ...]  # id, xid, at in microseconds, rel, sig, shape, op, before, after
ShapeOf = Callable[[int, int | None, str | None], LoggedShape | None]


class Told(NamedTuple):
    """One transaction of a batch."""

    xid: int
    place: Place
    last_us: int
    size: int  # in changes
    changes: Sequence[Change] | None  # None: not read yet


class PostgresChangelog:
    """A `ChangeStream`. `shape_of` gives a table by its number and sum; `bring_in_step` looks for changed tables."""

    def __init__(
        self,
        session: SqlSession,
        names: PostgresNames,
        identity: LogIdentity,
        position: Position,
        shape_of: ShapeOf,
        bring_in_step: Callable[[], None],
    ) -> None:
        self._session, self._names, self._identity = session, names, identity
        self._shape_of, self._bring_in_step = shape_of, bring_in_step
        self.seen = seen_of(position["seen"])
        self._lasting = LastingNumbers(self.seen.xmax)
        self._batch: Iterator[list[Event]] | None = None
        self._begun = (seen_of(position["upto"]), place_in(position)) if "upto" in position else None
        self._tables: dict[int, Any] = {}
        self._confirmed: SeenSnapshot | None = self.seen
        self._purged_at = 0.0
        self._stepped_at = time.monotonic()
        self._beats: deque[tuple[int, int]] = deque(maxlen=BEATS_KEPT)
        self._quiet_us = 0
        self._is_new_shape = False

    def read(self, limit: int, wait_s: float) -> Sequence[Event]:
        try:
            if self._begun is not None:
                self._batch, self._begun = self._large(*self._begun, limit), None
            if self._batch is None:
                events = self._look(limit, wait_s)
                if self._batch is None:
                    return events
            found = next(self._batch, None)
        except Disconnected:
            raise
        except PeerError:
            self._bring_in_step()  # which says so where the changelog is gone
            raise
        if found is None:
            self._batch = None
            return self.read(limit, wait_s)
        return found

    def confirm(self, position: Position) -> None:
        if "upto" not in position:
            self._confirmed = seen_of(position["seen"])
        if time.monotonic() - self._purged_at >= PURGE_EVERY_S:
            self.purge()

    def close(self) -> None:
        self.purge()

    def purge(self) -> None:
        """Deletes what is confirmed. Nobody else deletes a change, and nobody waits for it."""
        self._purged_at = time.monotonic()
        seen, self._confirmed = self._confirmed, None
        changes = self._names.changes
        while seen is not None:
            gone = self._session.query(
                f"WITH gone AS (DELETE FROM {changes} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {changes}"
                " WHERE xid < %s::text::xid8 AND xid <> ALL(%s::text[]::xid8[]) LIMIT %s)) RETURNING 1)"
                " SELECT count(*) FROM gone",
                [str(seen.xmax), [str(one) for one in seen.open], PURGE_ROWS],
            )
            if gone[0][0] < PURGE_ROWS:
                return

    # Looking ----------------------------------------------------------------------------------------------------------

    def _look(self, limit: int, wait_s: float) -> list[Event]:
        """The events of a small batch, or Idle; or sets a large one."""
        deadline, sleep_s = time.monotonic() + wait_s, FIRST_SLEEP_S
        while True:
            if self._is_new_shape or time.monotonic() - self._stepped_at >= IN_STEP_EVERY_S:
                self._is_new_shape, self._stepped_at = False, time.monotonic()
                self._bring_in_step()
            upto, changes = self._unseen(limit)
            if len(changes) >= limit:
                write_down(self._session, self._names)
                self._batch = self._large(upto, (-1, 0), limit)
                return []
            if changes:
                return self._small(upto, changes)
            self.seen = upto.below(self._lasting.end)
            left = deadline - time.monotonic()
            if left <= 0:
                return [Idle(self._identity.position(self.seen.text), self._quiet_since(upto))] if wait_s else []
            time.sleep(min(sleep_s, left))
            sleep_s = min(2 * sleep_s, LONGEST_SLEEP_S)

    def _unseen(self, limit: int) -> tuple[SeenSnapshot, list[Change]]:
        """In one statement, so that rows and snapshot are of one instant, and the log's end is behind them."""
        found = self._session.query(
            f"WITH c AS (SELECT c.* FROM {self._names.changes} c WHERE {self._condition()} ORDER BY c.id LIMIT %s)"
            f" SELECT one.*, {_COLUMNS} FROM (SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
            " pg_current_wal_flush_lsn()::text) one LEFT JOIN c ON true ORDER BY c.id",
            [*self._values(), limit],
        )
        text, written, flushed = found[0][:3]
        upto = seen_of(text)
        self._lasting.look(upto.xmax, lsn_of(written), lsn_of(flushed), by=self._session.opened())
        return upto, [row[3:] for row in found if row[3] is not None]

    def _condition(self) -> str:
        """Not seen yet: what has begun since, and what was open then."""
        return "(c.xid >= %s::text::xid8 OR c.xid = ANY(%s::text[]::xid8[]))"

    def _values(self) -> list[Any]:
        return [str(self.seen.xmax), [str(one) for one in self.seen.open]]

    def heard(self, at_us: int, xid: int) -> None:
        """A transaction of ours had this number at that time: later ones have higher numbers."""
        self._beats.append((at_us, xid))

    def _quiet_since(self, upto: SeenSnapshot) -> int:
        """A time before which no change is still to come: that of the last beat before which all have ended."""
        while self._beats and self._beats[0][1] <= upto.xmin:
            self._quiet_us = self._beats.popleft()[0]
        return self._quiet_us

    # Small batches ----------------------------------------------------------------------------------------------------

    def _small(self, upto: SeenSnapshot, changes: list[Change]) -> list[Event]:
        told, before = in_order(changes), self.seen.text
        self._lasting.reach(max(one.xid for one in told) + 1)  # they are committed
        self.seen = upto.below(self._lasting.end)
        ends = [self._identity.position(before, self.seen.text, one.place) for one in told]
        ends[-1] = self._identity.position(self.seen.text)
        quiet_us = self._quiet_us
        events = self._transactions(told, ends)
        return events if self._quiet_since(upto) == quiet_us else [*events, Idle(ends[-1], self._quiet_us)]

    # Large batches ----------------------------------------------------------------------------------------------------

    def _large(self, upto: SeenSnapshot, after: Place, limit: int) -> Iterator[list[Event]]:
        """It begins with its end, in front of its first events: an Idle alone would mean that nothing is there."""
        self._lasting.reach(upto.xmax)  # it was written down
        before = self.seen.text
        first: list[Event] = [Idle(self._identity.position(before, upto.text, after), self._quiet_us)]
        listed = self._listed(upto, after)
        following = next(listed, None)
        while following is not None:
            group, count = [following], following.size
            following = next(listed, None)
            while following is not None and count + following.size <= limit:
                group.append(following)
                count += following.size
                following = next(listed, None)
            if following is None and count <= limit:
                self.seen = upto
            ends = [self._identity.position(before, upto.text, one.place) for one in group]
            if following is None:
                ends[-1] = self._identity.position(upto.text)
            for events in self._pages(group[0], ends[0], limit) if count > limit else [self._group(group, ends)]:
                yield first + events
                first = []
        self.seen = upto

    def _group(self, group: Sequence[Told], ends: Sequence[Position]) -> list[Event]:
        """Several transactions that are not more than one read."""
        found = self._session.query(
            f"SELECT {_COLUMNS} FROM {self._names.changes} c WHERE c.xid = ANY(%s::text[]::xid8[]) ORDER BY c.id",
            [[str(one.xid) for one in group]],
        )
        by_xid: dict[int, list[Change]] = {}
        for change in found:
            by_xid.setdefault(change[1], []).append(change)
        return self._transactions([one._replace(changes=by_xid.get(one.xid, ())) for one in group], ends)

    def _transactions(self, told: Iterable[Told], ends: Iterable[Position]) -> list[Event]:
        events: list[Event] = []
        for one, end in zip(told, ends, strict=True):
            assert one.changes is not None, "it was read"
            events.append(Begin(str(one.xid), one.last_us, one.xid))
            events += self._events(one.changes)
            events.append(Commit(end, one.last_us))
        return events

    def _pages(self, one: Told, end: Position, limit: int) -> Iterator[list[Event]]:
        """A transaction that is more than one read."""
        yield [Begin(str(one.xid), one.last_us, one.xid)]
        last = 0
        while True:
            changes = self._session.query(
                f"SELECT {_COLUMNS} FROM {self._names.changes} c WHERE c.xid = %s::text::xid8 AND c.id > %s"
                " ORDER BY c.id LIMIT %s",
                [str(one.xid), last, limit],
            )
            if not changes:
                yield [Commit(end, one.last_us)]
                return
            yield self._events(changes)
            last = changes[-1][0]

    def _listed(self, upto: SeenSnapshot, after: Place) -> Iterator[Told]:
        """The transactions of a batch in their order: a list that the server keeps, so that it may be long."""
        import psycopg

        connection = self._session.opened()
        statement = (
            f"WITH c AS (SELECT c.xid, c.id, c.at, c.op, c.before FROM {self._names.changes} c"
            f" WHERE {self._condition()} AND pg_visible_in_snapshot(c.xid, %s::pg_snapshot)),"
            " marks AS (SELECT before::pg_snapshot AS had, xid FROM c WHERE op = 'w'),"
            " told AS (SELECT xid, max(id) AS last, (extract(epoch FROM max(at)) * 1000000)::bigint AS us,"
            " count(*) AS n FROM c GROUP BY xid),"
            " placed AS (SELECT t.*, (SELECT count(*) FROM marks m WHERE m.xid <> t.xid"
            " AND NOT pg_visible_in_snapshot(t.xid, m.had)) AS behind FROM told t)"
            " SELECT xid::text::bigint, behind, last, us, n FROM placed"
            " WHERE (behind, last) > (%s, %s) ORDER BY behind, last"
        )
        with self._session.telling():
            cursor = psycopg.ServerCursor(connection, f"tidelog_{uuid4().hex}", withhold=True)
            try:
                cursor.execute(statement, [*self._values(), upto.text, *after])
                while rows := cursor.fetchmany(LISTED):
                    for xid, behind, last, us, count in rows:
                        yield Told(int(xid), (int(behind), int(last)), int(us), int(count), None)
            finally:
                if not connection.closed:
                    cursor.close()

    # Events -----------------------------------------------------------------------------------------------------------

    def _events(self, changes: Iterable[Change]) -> list[Event]:
        events: list[Event] = []
        for number, _, _, rel, sig, shape, op, before, after in changes:
            if op == "w":
                events.append(Message(WATERMARK, after.encode(), True, number))
                continue
            found = self._shape_of(rel, sig, shape)
            if shape is not None:
                self._is_new_shape = True
            if found is None:
                raise SourceLost(
                    f"a change of table {rel} is of columns that are not known (sum {sig}); take a new snapshot"
                )
            _, table, read = found
            known = self._tables.get(rel)
            if known is not table:
                self._tables[rel] = table
                if known is not None:
                    events.append(SchemaChange(table, "", table.schema, None, {}))
            if op == CREATE:
                events.append(RowChange(table, CREATE, None, read(after), number))
            elif op == UPDATE:
                events.append(RowChange(table, UPDATE, read(before), read(after), number))
            elif op == DELETE:
                events.append(RowChange(table, DELETE, read(before), None, number))
            else:
                events.append(RowChange(table, TRUNCATE, None, None, number))
        return events


def in_order(changes: Iterable[Change]) -> list[Told]:
    """The transactions of a batch, from its changes by order of id."""
    by_xid: dict[int, list[Change]] = {}
    for change in changes:
        by_xid.setdefault(change[1], []).append(change)
    marks = [(some[0][1], seen_of(some[0][7])) for some in by_xid.values() if some[0][6] == "w"]
    told = []
    for xid, some in by_xid.items():
        behind = sum(1 for mark, had in marks if mark != xid and not had.has(xid))
        last_us = max(change[2] for change in some)
        told.append(Told(xid, (behind, some[-1][0]), last_us, len(some), some))
    return sorted(told, key=lambda one: one.place)
