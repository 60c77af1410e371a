"""The triggers of one shape, and the tables that they write to.

    _tidelog_NAME_changes     id, shape, op, at, b0, a0, b1, a1, ...    one row a change: its columns before and after
    _tidelog_NAME_replaced    shape, k, c0, c1, ...                     rows that an INSERT or UPDATE may replace
    _tidelog_NAME_shapes      shape, name, described, live
    _tidelog_NAME_state       log, pruned

    op    c, u, d, t as in an envelope; U an update of which no row before is known; s a new shape; w a watermark

Rules:
- Columns of changes have no type, so SQLite keeps every value as it is: reals, blobs and texts survive to the bit.
- `id` is AUTOINCREMENT: with one writer at a time it is the order of commits, and no number is used twice.
- REPLACE deletes rows without firing delete triggers (unless recursive_triggers is on, which each connection chooses
  for itself). So before each insert, and each update of a unique column, the rows that would have to go are noted;
  after it, those that are gone are told as deleted, or, with the same key, as the row before an update. One that was
  ignored, or became an update (ON CONFLICT), has no after-insert: what was noted is thrown away by the next one. With
  recursive_triggers on, the delete trigger takes its row out of the note, so nothing is told twice.
- A statement that fails takes what its triggers wrote with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.capture.sources.sqlite.shapes import OURS, SqliteTable, conflicting, quoted, row_list

NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


TRIGGERS = ("bi", "ai", "bu", "au", "ad")  # before and after insert, update and delete


class Names:
    """Of what a capture has in a file."""

    def __init__(self, capture: str) -> None:
        self.prefix = f"{OURS}{capture}_"
        self.changes, self.replaced, self.shapes, self.state = (
            f"{self.prefix}{what}" for what in ("changes", "replaced", "shapes", "state")
        )

    @property
    def tables(self) -> tuple[str, ...]:
        return self.changes, self.replaced, self.shapes, self.state

    def trigger(self, shape: int, what: str) -> str:
        return f"{self.prefix}{shape}_{what}"

    def shape_of(self, trigger: str) -> int | None:
        """None for a trigger that is not this capture's: the name of one capture may begin with that of another."""
        shape, _, what = trigger.removeprefix(self.prefix).partition("_")
        ours = trigger.startswith(self.prefix) and shape.isdecimal() and what in TRIGGERS
        return int(shape) if ours else None


def create_tables(names: Names) -> Iterator[str]:
    yield (
        f"CREATE TABLE {quoted(names.changes)}"
        " (id INTEGER PRIMARY KEY AUTOINCREMENT, shape INTEGER, op TEXT, at INTEGER)"
    )
    yield f"CREATE TABLE {quoted(names.replaced)} (shape INTEGER, k)"
    yield (f"CREATE TABLE {quoted(names.shapes)} (shape INTEGER PRIMARY KEY, name TEXT, described TEXT, live INTEGER)")
    yield f"CREATE TABLE {quoted(names.state)} (log TEXT, pruned INTEGER)"


def widen(names: Names, have: int, need: int) -> Iterator[str]:
    for at in range(have, need):
        yield f"ALTER TABLE {quoted(names.changes)} ADD COLUMN b{at}"
        yield f"ALTER TABLE {quoted(names.changes)} ADD COLUMN a{at}"
        yield f"ALTER TABLE {quoted(names.replaced)} ADD COLUMN c{at}"


def create_triggers(names: Names, shape: int, one: SqliteTable) -> Iterator[str]:
    made = _Triggers(names, shape, one)
    yield made.before_insert()
    yield made.after_insert()
    if made.update_matters:
        yield made.before_update()
    yield made.after_update()
    yield made.after_delete()


def log_rows(names: Names, shape: int, one: SqliteTable, op: str, where: str = "1") -> str:
    """Every row of a table, as changes."""
    after = ", ".join(f"a{at}" for at in range(len(one.columns)))
    return (
        f"INSERT INTO {quoted(names.changes)} (shape, op, at, {after})"
        f" SELECT {shape}, '{op}', {NOW_MS}, {row_list(one)} FROM {quoted(one.name)} WHERE {where}"
    )


class _Triggers:
    def __init__(self, names: Names, shape: int, one: SqliteTable) -> None:
        self.names, self.shape, self.one = names, shape, one
        self.table = quoted(one.name)
        self.changes, self.replaced = quoted(names.changes), quoted(names.replaced)
        places = range(len(one.columns))
        self.before, self.after, self.kept = (", ".join(f"{letter}{at}" for at in places) for letter in ("b", "a", "c"))
        by_index = {column for index in one.unique for column, _ in index.columns}
        self.watched = [name for name in one.names if name in by_index or name in one.key]
        self.update_matters = bool(self.watched)

    def before_insert(self) -> str:
        return self._trigger("bi", "BEFORE INSERT", "", [self._forget_what_is_there(), self._note("")])

    def before_update(self) -> str:
        changed = " OR ".join(f"OLD.{quoted(name)} IS NOT NEW.{quoted(name)}" for name in self.watched)
        noted = self._note(f" AND NOT ({self._same_row('t', 'OLD')})")
        return self._trigger("bu", "BEFORE UPDATE", f" WHEN {changed}", [self._forget_what_is_there(), noted])

    def after_insert(self) -> str:
        same = self._same_key("s", "NEW")
        gone = self._gone(" OR s.k = NEW.rowid" if self.one.has_rowid else f" OR {same}")
        replaced = (
            f"INSERT INTO {self.changes} (shape, op, at, {self.before}, {self.after}) SELECT {self.shape}, 'u',"
            f" {NOW_MS}, {self._kept('s')}, {self._row('NEW')} FROM {self.replaced} s WHERE {gone} AND {same}"
        )
        created = (
            f"INSERT INTO {self.changes} (shape, op, at, {self.after}) SELECT {self.shape}, 'c', {NOW_MS},"
            f" {self._row('NEW')} WHERE NOT EXISTS (SELECT 1 FROM {self.replaced} s WHERE {gone} AND {same})"
        )
        return self._trigger("ai", "AFTER INSERT", "", [self._tell_gone(gone, same), replaced, created, self._clear()])

    def after_update(self) -> str:
        told = (
            f"INSERT INTO {self.changes} (shape, op, at, {self.before}, {self.after})"
            f" VALUES ({self.shape}, 'u', {NOW_MS}, {self._row('OLD')}, {self._row('NEW')})"
        )
        if not self.update_matters:
            return self._trigger("au", "AFTER UPDATE", "", [told])
        gone = self._gone(" OR s.k = NEW.rowid" if self.one.has_rowid else f" OR {self._same_key('s', 'NEW')}")
        old = "s.k = OLD.rowid" if self.one.has_rowid else self._same_key("s", "OLD")  # ON CONFLICT DO UPDATE noted it
        return self._trigger("au", "AFTER UPDATE", "", [self._tell_gone(gone, old), told, self._clear()])

    def after_delete(self) -> str:
        told = (
            f"INSERT INTO {self.changes} (shape, op, at, {self.before})"
            f" VALUES ({self.shape}, 'd', {NOW_MS}, {self._row('OLD')})"
        )
        own = "k = OLD.rowid" if self.one.has_rowid else self._same_key(self.replaced, "OLD")
        return self._trigger(
            "ad", "AFTER DELETE", "", [told, f"DELETE FROM {self.replaced} WHERE shape = {self.shape} AND {own}"]
        )

    # Pieces -----------------------------------------------------------------------------------------------------------

    def _trigger(self, what: str, when: str, condition: str, statements: list[str]) -> str:
        name = quoted(self.names.trigger(self.shape, what))
        return f"CREATE TRIGGER {name} {when} ON {self.table}{condition} BEGIN {'; '.join(statements)}; END"

    def _note(self, but: str) -> str:
        k = "t.rowid" if self.one.has_rowid else "NULL"
        return (
            f"INSERT INTO {self.replaced} (shape, k, {self.kept}) SELECT {self.shape}, {k}, {self._row('t')}"
            f" FROM {self.table} t WHERE ({conflicting(self.one, 'NEW', 't')}){but}"
        )

    def _forget_what_is_there(self) -> str:
        """Notes of statements that came to nothing. Those of one that is under way are of rows that are gone."""
        there = f"EXISTS (SELECT 1 FROM {self.table} t WHERE {self._same_as_noted('t', self.replaced)})"
        return f"DELETE FROM {self.replaced} WHERE shape = {self.shape} AND {there}"

    def _tell_gone(self, gone: str, but: str) -> str:
        return (
            f"INSERT INTO {self.changes} (shape, op, at, {self.before}) SELECT {self.shape}, 'd', {NOW_MS},"
            f" {self._kept('s')} FROM {self.replaced} s WHERE {gone} AND NOT ({but})"
        )

    def _clear(self) -> str:
        return f"DELETE FROM {self.replaced} WHERE shape = {self.shape}"

    def _gone(self, also: str) -> str:
        there = f"EXISTS (SELECT 1 FROM {self.table} t WHERE {self._same_as_noted('t', 's')})"
        return f"s.shape = {self.shape} AND (NOT {there}{also})"

    def _same_as_noted(self, row: str, noted: str) -> str:
        if self.one.has_rowid:
            return f"{row}.rowid = {noted}.k"
        return " AND ".join(f"{row}.{quoted(name)} = {noted}.{self._place(name)}" for name in self.one.key)

    def _same_key(self, noted: str, new: str) -> str:
        if not self.one.key:
            return f"{noted}.k = {new}.rowid"
        return " AND ".join(f"{noted}.{self._place(name)} IS {new}.{quoted(name)}" for name in self.one.key)

    def _same_row(self, row: str, old: str) -> str:
        if self.one.has_rowid:
            return f"{row}.rowid = {old}.rowid"
        return " AND ".join(f"{row}.{quoted(name)} = {old}.{quoted(name)}" for name in self.one.key)

    def _place(self, name: str) -> str:
        return f"c{self.one.names.index(name)}"

    def _row(self, of: str) -> str:
        return row_list(self.one, f"{of}.")

    def _kept(self, of: str) -> str:
        return ", ".join(f"{of}.c{at}" for at in range(len(self.one.columns)))
