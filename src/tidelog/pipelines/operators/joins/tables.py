"""A table with a table: two changelogs in, the changelog of their join out. The fold of `join_tables`.

Rules:
- After every step, what was put out adds up to the join of what came in: `changelog.py` says what adding up is.
- Rows are a multiset: a row that a side has twice is joined twice. The state has each different row once, and a count.
- A step looks at what changed in all. With n rows before it and m after on one side, k and l on the other, a pair comes
  out m * l - n * k times: as additions, or as retractions. A pair of which neither side changed is not looked at.
- Outer rows: a row stands alone while the other side has no row of its key. It is retracted when the first one comes,
  and comes back when the last one goes. Semi and anti joins are the same question, without the other side's columns.
- A null in the key meets nothing, so such rows need no state: they stand alone, or nowhere.
- A retraction of a row that is not there is refused: the input is no changelog, and every answer would be wrong.
- All inputs of a micro-batch count at once: no half of a transfer is ever seen.

    state   _side   whose row it is      _count   how often it is there, 1 or more; its key, and the columns of its side
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import UsageError
from tidelog.pipelines.operators.changelog import COUNT, DELETE, HEAD, INSERT, of_changes
from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Mask, Numbers, key_codes, pairs, taken
from tidelog.pipelines.operators.joins.sides import LEFT, RIGHT, Columns, as_users_know
from tidelog.pipelines.operators.state.fold import DUE, HASH, SIDE, Clock, Step

INNER, LEFT_OUTER, RIGHT_OUTER, FULL, SEMI, ANTI = "inner", "left", "right", "full", "semi", "anti"
KINDS = (INNER, LEFT_OUTER, RIGHT_OUTER, FULL, SEMI, ANTI)
LEFT_ALONE = (LEFT_OUTER, FULL)
RIGHT_ALONE = (RIGHT_OUTER, FULL)
LEFT_ONLY = (SEMI, ANTI)
OLD = "_old"


class Side(NamedTuple):
    """The different rows of one side that a step knows, how often each was there and is, and the code of its key."""

    rows: pa.Table
    old: Numbers
    new: Numbers
    codes: Numbers

    @property
    def changed(self) -> Mask:
        return np.asarray(self.old != self.new)


class Change(NamedTuple):
    """Rows of the output, as places on the left and on the right, and how many more there are of each."""

    left: Numbers
    right: Numbers
    more: Numbers


@dataclass(frozen=True, slots=True)
class TableJoin:
    columns: Columns
    how: str
    on: tuple[tuple[str, str], ...] = ()  # for who goes on with the state: it has the names of the left alone
    name: str = "join_tables"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        head = pa.schema([(HASH, pa.int64()), (SIDE, pa.int8()), (COUNT, pa.int64())])
        return pa.schema([*head, *self.columns.all, pa.field(DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        right = () if self.how in LEFT_ONLY else self.columns.right
        return pa.schema([*HEAD, *self.columns.keys, *self.columns.left, *right])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        if not len(rows):
            return Step(state, self.output_schema.empty_table())
        left, right = self._sides(state, rows)
        changes = [*self._together(left, right), *self._alone(left, right)]
        whole = Change(*(np.concatenate(part) for part in zip(*changes, strict=True)))
        return Step(self._state(left, right), self._output(left, right, whole))

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        """The rows of the join that the key has: as if all of its state had just come."""
        joined = self.step(self.state_schema.empty_table(), state, clock).output
        return as_users_know(joined)

    def _sides(self, state: pa.Table, rows: pa.Table) -> tuple[Side, Side]:
        counted = []
        for side, own in ((LEFT, self.columns.left), (RIGHT, self.columns.right)):
            names = [HASH, *self.columns.keys.names, *own.names]
            counted.append(_counted(_of_side(state, side, names), _of_side(rows, side, names), names))
        codes = key_codes([one.select(self.columns.keys.names) for one in counted], self.columns.keys.names)
        left, right = (_side(one, code) for one, code in zip(counted, codes, strict=True))
        return left, right

    def _together(self, left: Side, right: Side) -> list[Change]:
        if self.how in LEFT_ONLY:
            return []
        changed = np.flatnonzero(left.changed)
        same = np.flatnonzero(~left.changed)
        others = np.flatnonzero(right.changed)
        first = pairs(left.codes[changed], right.codes)
        second = pairs(left.codes[same], right.codes[others])
        return [
            _more(left, right, changed[first.left], first.right),
            _more(left, right, same[second.left], others[second.right]),
        ]

    def _alone(self, left: Side, right: Side) -> list[Change]:
        found = []
        if self.how in (*LEFT_ALONE, *LEFT_ONLY):
            more = _alone(left, right, alone=self.how != SEMI)
            found.append(Change(np.flatnonzero(more), np.full(np.count_nonzero(more), NO_ROW), more[more != 0]))
        if self.how in RIGHT_ALONE:
            more = _alone(right, left, alone=True)
            found.append(Change(np.full(np.count_nonzero(more), NO_ROW), np.flatnonzero(more), more[more != 0]))
        return found

    def _output(self, left: Side, right: Side, change: Change) -> pa.Table:
        gone, come = change.more < 0, change.more > 0
        taken_away = self._rows(left, right, _repeated(change, gone))
        added = self._rows(left, right, _repeated(change, come))
        ops = pa.repeat(DELETE, len(taken_away)), pa.repeat(INSERT, len(added))
        return of_changes(taken_away, added, *ops)

    def _rows(self, left: Side, right: Side, change: Change) -> pa.Table:
        keys = self.columns.keys.names
        rows = taken(left.rows.select([*keys, *self.columns.left.names]), change.left)
        if self.how in LEFT_ONLY:
            return rows
        of_keys = rows.select(keys).columns
        if self.how in RIGHT_ALONE:
            of_keys = map(pc.coalesce, of_keys, taken(right.rows.select(keys), change.right).columns)
        own = rows.select(self.columns.left.names).columns
        others = taken(right.rows.select(self.columns.right.names), change.right).columns
        return pa.table([*of_keys, *own, *others], schema=pa.schema(list(self.output_schema)[len(HEAD) :]))

    def _state(self, left: Side, right: Side) -> pa.Table:
        return pa.concat_tables([self._kept(left, LEFT), self._kept(right, RIGHT)])

    def _kept(self, side: Side, number: int) -> pa.Table:
        kept = np.flatnonzero((side.new > 0) & (side.codes != NO_KEY))
        rows = side.rows.take(pa.array(kept))
        rows = rows.append_column(SIDE, pa.array(np.full(len(kept), number, np.int8)))
        rows = rows.append_column(COUNT, pa.array(side.new[kept]))
        there = set(rows.column_names)
        columns = [
            rows[field.name] if field.name in there else pa.nulls(len(kept), field.type) for field in self.state_schema
        ]
        return pa.table(columns, schema=self.state_schema)


def _of_side(rows: pa.Table, side: int, names: list[str]) -> pa.Table:
    """These columns and COUNT."""
    return rows.select([*names, COUNT]).filter(pc.equal(rows[SIDE], pa.scalar(side, pa.int8())))


def _counted(state: pa.Table, rows: pa.Table, names: list[str]) -> pa.Table:
    """Each different row once, with how often it was there (OLD) and how often it is (COUNT)."""
    held = state.append_column(OLD, state[COUNT])
    come = rows.append_column(OLD, pa.array(np.zeros(len(rows), np.int64)))
    both = pa.concat_tables([held, come.cast(held.schema)]).combine_chunks()
    return both.group_by(names, use_threads=False).aggregate([(OLD, "sum"), (COUNT, "sum")])


def _side(counted: pa.Table, codes: Numbers) -> Side:
    old, new = counted[f"{OLD}_sum"].to_numpy(), counted[f"{COUNT}_sum"].to_numpy()
    rows = counted.drop_columns([f"{OLD}_sum", f"{COUNT}_sum"])
    if np.any(missing := (new < 0) & (codes != NO_KEY)):
        row = rows.drop_columns([HASH]).slice(int(missing.argmax()), 1).to_pylist()[0]
        raise UsageError(
            f"join_tables got a delete of a row that does not exist: {row}; its input is not a complete changelog;"
            " make one by as_changelog(by=..., order=PLACE)"
        )
    return Side(rows, old, new, codes)


def _more(left: Side, right: Side, lefts: Numbers, rights: Numbers) -> Change:
    more = left.new[lefts] * right.new[rights] - left.old[lefts] * right.old[rights]
    changed = more != 0
    return Change(lefts[changed], rights[changed], more[changed])


def _alone(side: Side, other: Side, *, alone: bool) -> Numbers:
    """How many more there are of each row, of those whose key the other side does not have (or, not `alone`, has)."""
    before, after = (_has(side.codes, other.codes, counts) for counts in (other.old, other.new))
    return np.where(after != alone, side.new, 0) - np.where(before != alone, side.old, 0)


def _has(codes: Numbers, others: Numbers, counts: Numbers) -> Mask:
    """Whether there is a row of each code among the others."""
    there = np.zeros(int(max(codes.max(initial=NO_KEY), others.max(initial=NO_KEY))) + 2, bool)
    there[others[counts > 0]] = True
    there[NO_KEY] = False
    return there[codes]


def _repeated(change: Change, chosen: Mask) -> Change:
    times = np.abs(change.more[chosen])
    return Change(np.repeat(change.left[chosen], times), np.repeat(change.right[chosen], times), times)
