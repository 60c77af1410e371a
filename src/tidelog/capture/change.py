"""What a source tells: tables, and the events of its transactions. Values, and nothing that does IO.

    Begin, Row*, Commit        one transaction, whole and in commit order; nothing of another one lies between
    SchemaChange               inside of a transaction or between two
    Message                    a logical message (PostgreSQL), inside of a transaction or between two
    Idle                       nothing lies before this position that was not told

Rules:
- A value is its JSON text, as Debezium's connector has it by default for a column of that type: `12`, `"a\\nb"`,
  `"AeI="`, `null`. The source makes it once, straight from what the database sent, and the envelope only joins texts:
  this is the hot path. A value of a large column that the database did not send is `unavailable(column)`.
- A row has a value for every column of its table, in the table's order. `before` has `null` for what the database does
  not tell (all but the key, as a rule), and is None where nothing at all is known.
- A position is a JSON object that only its source reads. That of a Commit is where reading goes on after it.
- A table is the same object as long as its shape is the same; who keeps something by table keeps it by identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"
UNAVAILABLE = "__debezium_unavailable_value"

Position = Mapping[str, Any]
Values = tuple[str, ...]  # JSON texts


@dataclass(frozen=True)
class SourceColumn:
    name: str
    connect: Mapping[str, Any]  # its Connect schema but for `field`: {"type":"int32","optional":false}
    declared: str = ""  # its type in the database's own words, for messages and the schema-change topic
    unavailable: str = f'"{UNAVAILABLE}"'  # the JSON text that stands for a value that was not sent


@dataclass(frozen=True, eq=False)
class SourceTable:
    """Its shape at one position. Compared by identity: a changed table is a new object."""

    schema: str  # of PostgreSQL; of MySQL and MariaDB the database; `main` of SQLite
    name: str
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]  # columns of the primary key in its order; () for a table without one
    id: str = ""  # what it keeps under another name; "" where its source tells by itself what became of a name

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


class Begin(NamedTuple):
    id: str  # of the transaction, as its metadata names it
    commit_us: int  # when it was committed, in microseconds since 1970; 0 where that is not known yet
    where: Any = None  # what the source wants to see again in `source_block`


class RowChange(NamedTuple):
    table: SourceTable
    op: str
    before: Values | None
    after: Values | None
    where: Any = None  # what the source wants to see again in `source_block`: its LSN, file and position, ...


class Commit(NamedTuple):
    position: Position
    commit_us: int


class SchemaChange(NamedTuple):
    """`table` is None where it was dropped, or is not one that is captured."""

    table: SourceTable | None
    database: str
    schema: str
    ddl: str | None  # where the source tells it
    position: Position
    replaced: Sequence[str] = ()  # names (schema.table; `schema.` for all of it) of other tables now, or of none


class Message(NamedTuple):
    prefix: str
    content: bytes
    transactional: bool
    where: Any = None


class Idle(NamedTuple):
    position: Position
    at_us: int  # the source's clock: no transaction that commits before it is still to come


Event = Begin | RowChange | Commit | SchemaChange | Message | Idle


class CheckFinding(NamedTuple):
    """One thing that `capture check` says."""

    severity: str  # "error": capture refuses to start; "warning"; "ok"
    what: str  # what was found, with the values
    remedy: str = ""  # the statement or setting that mends it, ready to be pasted


class SourceLag(NamedTuple):
    """How far the source has gone on without us, and what it keeps for us."""

    bytes: int | None
    seconds: float | None
    kept_bytes: int | None  # log that the source cannot remove because of us
    state: str = ""  # of a slot: reserved, extended, unreserved, lost
