"""The SQL of a capture by triggers: its tables, and the triggers of one shape of a table.

    database _tidelog_NAME, with
    changes    id, shape, op, at, before_row, after_row         one row a change; a row is a JSON array of its columns
    shapes     shape, db, name, described, ids, live            a table's columns at some time; its numbers in InnoDB
    state      log, ready, beat

    op    c, u, d, t as in an envelope; U an update of which no row before is known; s a new shape;
          x a change that could not be logged, because a column is gone

Rules:
- Each column is written as what does not depend on the writer's session: a timestamp as seconds since 1970, a float as
  a double, text as utf8mb4, bytes as hex. The trigger has the sql_mode that it was made with, which is none.
- A trigger must name its columns. One that is gone since would fail the application's write with error 1054, so that
  error is handled: an `x` is logged, and the reader tells the table anew. The same for a changelog that is gone (1146).
  Every other error (a full disk) fails the write: to go on would lose a change without a word.
- `id` is AUTO_INCREMENT. It is drawn after the row was changed, so while that is locked: changes of one row have ids in
  their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from tidelog.capture.sources.mysql.kinds import MysqlKind
from tidelog.capture.sources.mysql.session import quoted

OURS = "_tidelog_"
EVENTS = (("i", "INSERT"), ("u", "UPDATE"), ("d", "DELETE"))


class MysqlNames:
    """Of what a capture has on a server."""

    def __init__(self, capture: str) -> None:
        self.database = f"{OURS}{capture}"
        self.changes, self.shapes, self.state = (quoted(self.database, what) for what in ("changes", "shapes", "state"))

    def trigger(self, table: str, event: str) -> str:
        """The same for every shape of a table, so that it is replaced, and no change is logged twice or not at all."""
        return f"{self.database}!{crc32(table.encode()):08x}_{event}"

    def has(self, trigger: str) -> bool:
        return trigger.startswith(f"{self.database}!")


def create_tables(names: MysqlNames) -> Iterator[str]:
    yield (
        f"CREATE TABLE IF NOT EXISTS {names.changes} (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,"
        " shape INT NOT NULL, op CHAR(1) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,"
        " at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), before_row LONGTEXT, after_row LONGTEXT)"
        " ENGINE = InnoDB CHARACTER SET utf8mb4"
    )
    yield (
        f"CREATE TABLE IF NOT EXISTS {names.shapes} (shape INT AUTO_INCREMENT PRIMARY KEY, db VARCHAR(64) NOT NULL,"
        " name VARCHAR(64) NOT NULL, described LONGTEXT NOT NULL, ids TEXT NOT NULL, live BOOLEAN NOT NULL)"
        " ENGINE = InnoDB CHARACTER SET utf8mb4"
    )
    yield (
        f"CREATE TABLE IF NOT EXISTS {names.state} (log VARCHAR(32) NOT NULL, ready BOOLEAN NOT NULL,"
        " beat INT NOT NULL) ENGINE = InnoDB CHARACTER SET utf8mb4"
    )


def logged(name: str, kind: MysqlKind, of: str) -> str:
    """A column of a row as the trigger writes it; `of` is NEW, OLD or an alias."""
    column = f"{of}.{quoted(name)}"
    if kind.name.startswith("int") or kind.name == "decimal":
        return column
    if kind.name in {"float", "double"}:
        return f"{column}+0e0"
    if kind.name in {"bit", "year"}:
        return f"{column}+0"
    if kind.name == "timestamp":
        return f"UNIX_TIMESTAMP({column})"
    if kind.name in {"bytes", "binary", "geometry", "point"}:
        return f"HEX({column})"
    if kind.name in {"text", "enum", "set", "json"}:
        return f"CONCAT(CONVERT({column} USING utf8mb4), '')"  # alone, a column of JSON would be a value, not a text
    return f"CAST({column} AS CHAR)"


def row_of(columns: Sequence[tuple[str, MysqlKind]], of: str) -> str:
    return f"JSON_ARRAY({', '.join(logged(name, kind, of) for name, kind in columns)})"


def is_true(table: str, watched: Sequence[str]) -> str:
    """Whether an update took place. UPDATE IGNORE fires triggers for a row that it has left as it was, because another
    has its unique key or it would break a foreign key: the old row is still there then."""
    same = " AND ".join(f"OLD.{quoted(name)} <=> NEW.{quoted(name)}" for name in watched)
    still = " AND ".join(f"{quoted(name)} <=> OLD.{quoted(name)}" for name in watched)
    return f"({same}) OR NOT EXISTS (SELECT 1 FROM {table} WHERE {still})"


def create_triggers(
    names: MysqlNames,
    shape: int,
    database: str,
    table: str,
    columns: Sequence[tuple[str, MysqlKind]],
    watched: Sequence[str],
) -> Iterator[str]:
    for event, when in EVENTS:
        before = row_of(columns, "OLD") if event in "ud" else "NULL"
        after = row_of(columns, "NEW") if event in "iu" else "NULL"
        op = {"i": "c", "u": "u", "d": "d"}[event]
        into = f"INSERT INTO {names.changes} (shape, op, before_row, after_row) VALUES ({shape},"
        if_true = f"IF {is_true(quoted(database, table), watched)} THEN" if event == "u" and watched else "IF TRUE THEN"
        yield (
            f"CREATE OR REPLACE TRIGGER {quoted(database, names.trigger(table, event))} AFTER {when}"
            f" ON {quoted(database, table)} FOR EACH ROW BEGIN"
            " DECLARE CONTINUE HANDLER FOR 1146 BEGIN END;"
            " DECLARE CONTINUE HANDLER FOR 1054 BEGIN DECLARE CONTINUE HANDLER FOR 1146 BEGIN END;"
            f" {into} 'x', NULL, NULL); END;"
            f" {if_true} {into} '{op}', {before}, {after}); END IF; END"
        )


def log_rows(
    names: MysqlNames,
    shape: int,
    op: str,
    table: tuple[str, str],
    columns: Sequence[tuple[str, MysqlKind]],
    where: str = "TRUE",
) -> str:
    """Rows of a table as changes. They are locked until the end of the transaction, so that no writer is between."""
    return (
        f"INSERT INTO {names.changes} (shape, op, after_row) SELECT {shape}, '{op}', {row_of(columns, 'r')}"
        f" FROM {quoted(*table)} r WHERE {where} LOCK IN SHARE MODE"
    )
