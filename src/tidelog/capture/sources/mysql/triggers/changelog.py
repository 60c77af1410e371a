"""Reading the table of changes: a stream of events.

InnoDB tells a trigger no number of its transaction, and a reader no list of what its view has. But a look is one
statement, so it sees every transaction whole or not at all. So the *unit* is what one look finds and those before it
did not (`seen.py`): each transaction lies in one unit, whole, and a unit may have several. Its id is its first number.

- Changes of one row are in their order: the second writer waits for the first to end, so it draws a higher number, and
  whatever view has the second has the first.
- A number that is missing is looked for until it is there, or cannot come any more. That is so when every transaction
  that was open at some time after it was found missing has ended (`information_schema.INNODB_TRX`), and a later look
  does not have it: whoever draws a number has changed a row before, so he was in that list. The list may be a tenth of
  a second old. So a transaction of ours is begun first, and a list without it is not taken.
- A watermark is the end of a look of its own: what the chunk after it does not see, this look did not either.
- A large unit begins with an Idle whose position names its end: after a restart the same rows come in the same order.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

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
    SourceTable,
    Values,
)
from tidelog.capture.sources.mysql import session
from tidelog.capture.sources.mysql.session import MysqlSettings, query
from tidelog.capture.sources.mysql.triggers.seen import (
    SeenNumbers,
    after,
    between,
    is_in,
    seen_in,
    unseen,
    without_gaps_up_to,
)
from tidelog.capture.sources.mysql.triggers.statements import MysqlNames
from tidelog.errors import PeerError, SourceLost

WATERMARK = "tidelog.watermark"
FIRST_SLEEP_S, LONGEST_SLEEP_S = 0.001, 0.01
PURGE_EVERY_S, PURGE_ROWS = 2.0, 5_000
IN_STEP_EVERY_S = 5.0
GIVE_UP_EVERY_S = 0.5
NO_TABLE = 1146

_COLUMNS = "id, shape, op, CAST(UNIX_TIMESTAMP(at) * 1000000 AS UNSIGNED), before_row, after_row"
_OPEN = "SELECT trx_id, trx_mysql_thread_id = CONNECTION_ID() FROM information_schema.INNODB_TRX"
Change = tuple[Any, ...]
LoggedRows = tuple[SourceTable, Callable[[str], Values]]


class OpenThen(NamedTuple):
    """Transactions that were open when every number up to `last` was drawn."""

    last: int
    open: frozenset[str]


class GapChangelog:
    """A `ChangeStream`. `shape_of` gives a table by number of shape; `bring_in_step` looks for changed tables."""

    def __init__(
        self,
        settings: MysqlSettings,
        names: MysqlNames,
        log: str,
        position: Position,
        shape_of: Callable[[int], LoggedRows | None],
        bring_in_step: Callable[[frozenset[int]], None],
    ) -> None:
        self._settings, self._names, self._log = settings, names, log
        self._shape_of, self._bring_in_step = shape_of, bring_in_step
        with session.mapped(settings):
            self._connection = session.connect(settings)
            query(self._connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            query(self._connection, "SET SESSION innodb_lock_wait_timeout = 1")
        self.seen = seen_in(position)
        self._unit: Iterator[list[Event]] | None = None
        self._upto: SeenNumbers | None = None  # of the unit that is being told
        self._begun = seen_in(position["upto"]) if "upto" in position else None
        self._marks: deque[tuple[SeenNumbers, str]] = deque()
        self._confirmed: SeenNumbers | None = self.seen
        self._purged_at = self._stepped_at = self._gave_up_at = time.monotonic()
        self._then: OpenThen | None = None
        self._ours = ""
        self._lost: set[int] = set()
        self._is_time_asked = False
        self._tables: dict[tuple[str, str], SourceTable] = {}

    def read(self, limit: int, wait_s: float) -> Sequence[Event]:
        with session.mapped(self._settings):
            while True:
                if self._unit is None:
                    events = self._next(limit, wait_s)
                    if events is not None:
                        return events
                assert self._unit is not None
                found = next(self._unit, None)
                if found is not None:
                    return found
                self._unit = None

    def confirm(self, position: Position) -> None:
        if "upto" not in position:
            self._confirmed = seen_in(position)
        if time.monotonic() - self._purged_at >= PURGE_EVERY_S:
            self.purge()

    def close(self) -> None:
        try:
            self.purge()
        finally:
            session.end(self._connection)

    def purge(self) -> None:
        """Deletes what is confirmed, by its numbers: a range would wait for those in it that are not committed."""
        self._purged_at = time.monotonic()
        seen, self._confirmed = self._confirmed, None
        with session.mapped(self._settings):
            while seen is not None:
                sql = f"SELECT id FROM {self._names.changes} WHERE id <= {seen.last} ORDER BY id LIMIT {PURGE_ROWS}"
                found = [int(number) for (number,) in query(self._connection, sql)]
                gone = [str(number) for number in found if is_in(seen, number)]
                if gone:
                    query(self._connection, f"DELETE FROM {self._names.changes} WHERE id IN ({', '.join(gone)})")
                if len(gone) < PURGE_ROWS:
                    return

    def beat(self) -> None:
        """Asks for the time of the next look."""
        self._is_time_asked = True

    def put_watermark(self, text: str) -> None:
        """At the end of a look of now."""
        before = self._marks[-1][0] if self._marks else self._upto or self._begun or self.seen
        with session.mapped(self._settings):
            self._marks.append((self._looked(before), text))

    # Looking ----------------------------------------------------------------------------------------------------------

    def _next(self, limit: int, wait_s: float) -> list[Event] | None:
        """The events of a small unit, of a mark, or Idle; None: a large unit was set."""
        if self._begun is not None:
            self._unit, self._begun = self._large(self._begun, limit), None
            return None
        if self._marks:
            upto, text = self._marks[0]
            if upto != self.seen:
                self._unit = self._large(upto, limit)
                return None
            self._marks.popleft()
            return [Message(WATERMARK, text.encode(), False)]
        return self._look(limit, wait_s)

    def _look(self, limit: int, wait_s: float) -> list[Event] | None:
        deadline, sleep_s, at_us = time.monotonic() + wait_s, FIRST_SLEEP_S, 0
        while True:
            self._step()
            at_us = self._time() or at_us
            given_up = self._given_up()
            changes = self._changes(unseen(self.seen), limit)
            if len(changes) >= limit:
                self._unit = self._large(self._looked(self.seen), limit)
                return None
            self.seen = after(self.seen, [int(change[0]) for change in changes])
            if given_up:
                self.seen = without_gaps_up_to(self.seen, given_up)
            if changes:
                return [*self._whole(changes), *([Idle(self._position(self.seen), at_us)] if at_us else [])]
            left = deadline - time.monotonic()
            if left <= 0:
                return [Idle(self._position(self.seen), at_us)] if wait_s else []
            time.sleep(min(sleep_s, left))
            sleep_s = min(2 * sleep_s, LONGEST_SLEEP_S)

    def _time(self) -> int:
        """The server's clock, if it was asked for: the look that follows has all that was committed before."""
        if not self._is_time_asked:
            return 0
        self._is_time_asked = False
        ((at_us,),) = query(self._connection, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)")
        return int(at_us)

    def _looked(self, seen: SeenNumbers) -> SeenNumbers:
        """What a look of now has: numbers alone, one after the other, since they may be many."""
        from pymysql.cursors import SSCursor

        with self._connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT id FROM {self._names.changes} WHERE {unseen(seen)} ORDER BY id")
            return after(seen, (int(number) for (number,) in cursor))

    def _changes(self, condition: str, limit: int) -> list[Change]:
        import pymysql

        sql = f"SELECT {_COLUMNS} FROM {self._names.changes} WHERE {condition} ORDER BY id LIMIT {limit:d}"
        try:
            return query(self._connection, sql)
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != NO_TABLE:
                raise
            raise SourceLost(
                f"the log of changes {self._names.database} is gone; take a new snapshot: run capture with"
                " `--snapshot when_needed`"
            ) from None

    def _step(self) -> None:
        if self._lost or time.monotonic() - self._stepped_at >= IN_STEP_EVERY_S:
            lost, self._lost = frozenset(self._lost), set()
            self._stepped_at = time.monotonic()
            self._bring_in_step(lost)

    def _given_up(self) -> int:
        """Up to which number gaps cannot be filled any more but by what the next look has; 0: none."""
        now = time.monotonic()
        if not self.seen.gaps or now - self._gave_up_at < GIVE_UP_EVERY_S:
            return 0
        self._gave_up_at = now
        open_now = self._open()
        if open_now is None:
            return 0
        then = self._then
        if then is None or not then.open & open_now:
            self._then = OpenThen(self.seen.last, open_now)
            return 0 if then is None else then.last
        return 0

    def _open(self) -> frozenset[str] | None:
        """The transactions that are open; None where the list is from before ours."""
        try:
            query(self._connection, "START TRANSACTION")
            query(self._connection, f"UPDATE {self._names.state} SET beat = beat + 1")
            found = query(self._connection, _OPEN)
        finally:
            query(self._connection, "ROLLBACK")
        ours = next((str(number) for number, own in found if int(own or 0)), None)
        if ours is None or ours == self._ours:
            return None
        self._ours = ours
        return frozenset(str(number) for number, own in found if not int(own or 0))

    # Events -----------------------------------------------------------------------------------------------------------

    def _large(self, upto: SeenNumbers, limit: int) -> Iterator[list[Event]]:
        """It begins with its end, in front of its first events: an Idle alone would mean that nothing is there."""
        before, last = self.seen, 0
        self._upto = upto
        condition = between(before, upto)
        begun: list[Event] = [Idle({**self._position(before), "upto": upto.to_fields()}, 0)]
        at_us = 0
        while changes := self._changes(f"{condition} AND id > {last}", limit):
            if not last:
                begun.append(Begin(str(changes[0][0]), int(changes[0][3])))
            yield begun + self._events(changes)
            begun, last, at_us = [], int(changes[-1][0]), int(changes[-1][3])
        self.seen, self._upto = upto, None
        if last:
            yield [Commit(self._position(upto), at_us)]

    def _whole(self, changes: Sequence[Change]) -> list[Event]:
        last_us = int(changes[-1][3])
        begin = Begin(str(changes[0][0]), last_us)
        return [begin, *self._events(changes), Commit(self._position(self.seen), last_us)]

    def _position(self, seen: SeenNumbers) -> dict[str, Any]:
        return {"log": self._log, **seen.to_fields()}

    def _events(self, changes: Sequence[Change]) -> list[Event]:
        events: list[Event] = []
        for number, shape, op, at_us, before, after_ in changes:
            if op == "x":
                self._lost.add(int(shape))
                continue
            found = self._shape_of(int(shape))
            if found is None:
                raise SourceLost(f"change {number} is of shape {shape}, which is not known; take a new snapshot")
            table, read = found
            where = (int(number), int(at_us))
            known = self._tables.get((table.schema, table.name))
            if known is not table:
                self._tables[table.schema, table.name] = table
                if known is not None:
                    events.append(SchemaChange(table, table.schema, table.schema, None, self._position(self.seen)))
            if op == TRUNCATE:
                events.append(RowChange(table, TRUNCATE, None, None, where))
            elif op != "s":
                events.append(row_change(table, read, op, before, after_, where))
        return events


def row_change(
    table: SourceTable, read: Callable[[str], Values], op: str, before: str | None, after_: str | None, where: Any
) -> RowChange:
    if (before is None and op in "ud") or (after_ is None and op in "cuU"):
        raise PeerError(
            f"change {where[0]}, of a row of {table.full_name}, is larger than max_allowed_packet, so it could not be"
            " logged; raise max_allowed_packet to twice the largest row, and capture again with --snapshot when_needed"
        )
    if op == CREATE:
        return RowChange(table, CREATE, None, read(after_ or ""), where)
    if op == DELETE:
        return RowChange(table, DELETE, read(before or ""), None, where)
    old = None if op == "U" else read(before or "")
    return RowChange(table, UPDATE, old, read(after_ or ""), where)


def texts_of(row: str) -> list[Any]:
    """A logged row: numbers as their texts, so that no digit is lost."""
    found: list[Any] = json.loads(row, parse_int=str, parse_float=str)
    return found
