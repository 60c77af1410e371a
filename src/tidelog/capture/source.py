"""What a kind of database must be able to do to be captured: one protocol, three implementations.

    sources/sqlite/      triggers into a changelog table
    sources/postgres/    logical replication (pgoutput)
    sources/mysql/       the binlog, of MySQL and MariaDB

    check -> prepare -> snapshot (rows at one position) -> stream from that position on -> confirm ... -> close
    remove takes everything away that prepare made in the database

Rules:
- `read` gives the events of whole or part transactions in commit order. It waits for `wait_s` at most, and gives what
  there is; [] when nothing came. A transaction may come in many pieces: memory is bounded by `limit`, not by the
  transaction. `Begin` comes first, and `Commit` when all of it has been read.
- After a restart, `stream(position)` begins with the first transaction that commits after `position`, from its Begin.
  The core passes over those of its rows that it has stored: the source must give the same rows in the same order.
- `confirm` says that everything up to a position is stored and synced in the log: only then may the source forget it.
- A source that cannot go on without loss (a slot that is lost or ahead of us, a purged binlog) raises `SourceLost`.
  One that may be there again soon raises `Disconnected`: the core connects anew, with back-off.
- Nothing here knows a topic, an envelope's frame, or progress. A source knows its `source` block, since its fields do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.capture.change import Begin, CheckFinding, Event, Position, RowChange, SourceLag, SourceTable, Values

READ, KNOW, WAIT = "read", "know", "wait"


class Newcomer(NamedTuple):
    """A table that has come to be captured after the capture began, or comes back."""

    table: SourceTable
    missed: bool  # changes of it were not told for a while: what the log has of it may be wrong
    need: str = READ  # KNOW: its rows are told, and only its id is another one. WAIT: first what the stream has is told


class ChangeStream(Protocol):
    def read(self, limit: int, wait_s: float) -> Sequence[Event]: ...

    def confirm(self, position: Position) -> None: ...

    def close(self) -> None: ...


class SourceSnapshot(Protocol):
    """Rows of many tables at one position. Several readers may be open at once, each in a thread of its own, and all
    see the same rows. It may end before it was read whole (a crash, a lost connection): the next one then has a later
    position, and what was read before is read again or brought up to date by the core.
    """

    position: Position

    def tables(self) -> Sequence[SourceTable]: ...

    def count(self, table: SourceTable) -> int:
        """About how many rows, for the progress bar."""

    def split(self, table: SourceTable, parts: int) -> Sequence[tuple[Values | None, Values | None]]:
        """Ranges of keys (after, up to) that cover the table; one range where it has no key."""

    def rows(
        self, table: SourceTable, after: Values | None, to: Values | None, size: int
    ) -> Iterator[Sequence[Values]]:
        """The rows of a range by order of key, `size` at a time."""

    def close(self) -> None: ...


class ChangeSource(Protocol):
    connector: str  # as Debezium names it: "postgresql", "mysql", "mariadb", "sqlite"
    database: str
    source_schema: Mapping[str, Any]  # the Connect schema of its `source` block

    def check(self) -> Sequence[CheckFinding]: ...

    def prepare(self) -> None:
        """Makes what it needs in the database (slot, publication, triggers), unless it is there."""

    def newcomers(self, known: Mapping[str, str]) -> Sequence[Newcomer]:
        """Captured tables whose rows of before nobody tells unless they are read: those that are not in `known`, which
        are the log's names with ids (`control/captures.py`), those that are known by another id, and those of which
        changes were missed. Called at the start and every few seconds. When it is stored that they are to be read, the
        core calls `prepare`, from which on their changes are told, and then reads them by chunks. () where the source
        tells the rows of such a table itself.
        """

    def snapshot(self) -> SourceSnapshot: ...

    def stream(self, position: Position) -> ChangeStream: ...

    def tables(self) -> Sequence[SourceTable]:
        """Those that are captured, as they are now: the objects that rows come with, where the shape is the same."""

    def chunk(self, table: SourceTable, after: Values | None, to: Values | None, size: int) -> Sequence[Values]:
        """Up to `size` rows by order of key, as they are now: what an incremental snapshot reads."""

    def last_key(self, table: SourceTable) -> Values | None: ...

    def watermark(self, text: str) -> None:
        """Puts `text` into the source's own log, where `stream` gives it back as a Message with the prefix
        `tidelog.watermark`: the low and high watermarks of a chunk."""

    def source_block(self, row: RowChange, begin: Begin, snapshot: str, name: str) -> str:
        """The JSON text of the envelope's `source`. `snapshot` is Debezium's word: "false", "first", "true", ...
        Of a row of a snapshot that this source gave, `where` of both is None, and `commit_us` the time of reading; of
        an incremental one, `row.where` is that of the high watermark's Message. For a Message and a SchemaChange the
        row has op "m", and is of a table without a name or columns, or of the changed one.
        """

    def lag(self) -> SourceLag: ...

    def heartbeat(self) -> None:
        """Writes something small that moves the source's log on, where an idle database would hold it. And the stream
        is to tell an `Idle` with its time as soon as it can, also between changes that come all the time."""

    def remove(self) -> Sequence[str]:
        """Takes away what `prepare` made. Gives what it did, a line each."""

    def close(self) -> None: ...
