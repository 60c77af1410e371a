"""Upserts by key into a changelog, and a changelog into upserts by key: the folds of `as_changelog` and `as_upserts`.

Rules:
- `Upserts` keeps the row that each key has now. A key's last row of a step is what it is afterwards; a row that is
  equal to the one that was there changes nothing but its place: what is kept is what was put out, to the bit, so that
  it can be taken back (0.0 is equal to -0.0, and is another row to who counts rows).
- Where rows have an ORDER, the largest is the last, and of equal ones the one that came last. Where they have places,
  it is `places.py` that says which is the last. Where they have neither, it is the one that came last.
- A row that is behind the one that is kept is ignored. So a deletion is kept, too, wherever rows have an order: its key
  and its place, for `deletes_kept` (`deletions.py`). What a step puts out does not rest on the clock: a micro-batch
  that is run again puts out the same.
- A row with TRUNCATED ends all keys whose last row stands before it in its partition; it has a place, and no key. What
  it ended is forgotten, since whatever comes of its partition later stands behind it.
- A row with UNSENT lacks the values of these columns: the key's row before it has them. Where there is not one, they
  are null, and counted (`unsent`).
- Counted, where rows have places: keys in a step that have moved between partitions (`moved`), and rows of state from
  before there were places (`without_place`), which the next record of their key replaces.

    state   _order                    of the last row; beside a place, its offset
            _recorded  _partition     where rows have places
            _gone_since               null for a row; for a deletion, the time in ms at which it was taken
        version 1 had none but _order, and of timestamps it had seconds; 2, of timestamps alone, had microseconds
        version 3 is that of all that have an order; without one, it is still version 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.control.counts import losses
from tidelog.pipelines.operators.changelog import (
    AFTER,
    BEFORE,
    DELETE,
    DELETED,
    HEAD,
    INSERT,
    OP,
    SEQ,
    of_changes,
    upserts_of,
)
from tidelog.pipelines.operators.joins import places
from tidelog.pipelines.operators.joins.deletions import DAY, GONE_SINCE, forgotten, gone_since
from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Mask, Numbers, key_codes
from tidelog.pipelines.operators.joins.places import FIRST, PARTITION, RECORDED, Last
from tidelog.pipelines.operators.joins.sides import GONE, ORDER, added
from tidelog.pipelines.operators.state.fold import DUE, HASH, Clock, Step
from tidelog.pipelines.operators.state.packing import nullable_schema
from tidelog.pipelines.operators.state.questions import shown

MICROSECONDS = 1_000_000  # in a second
TRUNCATED = "_tidelog_truncated"  # boolean; true of a row without a key that ends all of its partition
UNSENT = "_tidelog_unsent"  # names of columns, or null


@dataclass(frozen=True, slots=True)
class Upserts:
    columns: pa.Schema  # of the table
    by: tuple[str, ...]
    order: str | None = None  # the column that ORDER is made of; of a place, that of the offset
    order_in: str | None = None  # the unit of ORDER
    across: tuple[str, ...] = ()  # of a place: the columns of the time and of the partition
    deletes_kept: int = DAY
    captured: bool = False  # rows have TRUNCATED and UNSENT
    name: str = "as_changelog"

    @property
    def version(self) -> int:
        return 3 if self._is_ordered else 1

    @property
    def _is_ordered(self) -> bool:
        return self.order is not None or bool(self.across)

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        if version == 1 and self.order_in == "microseconds":
            order = pc.multiply(state[ORDER], MICROSECONDS)
            state = state.set_column(state.schema.get_field_index(ORDER), ORDER, order)
        for name in (*((RECORDED, PARTITION) if self.across else ()), GONE_SINCE):
            state = state.append_column(name, pa.nulls(len(state), pa.int64()))
        return state

    @property
    def state_schema(self) -> pa.Schema:
        head, due = pa.field(HASH, pa.int64()), pa.field(DUE, pa.int64())
        order = pa.field(ORDER, pa.int64())
        if not self._is_ordered:
            return pa.schema([head, *self.columns, order, due])
        more = [order, *(places.FIELDS if self.across else ()), pa.field(GONE_SINCE, pa.int64())]
        return pa.schema([head, *nullable_schema(self.columns), *more, due])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*HEAD, *self.columns])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        all_rows = added(state, self._as_state(rows, clock), self._held)
        (codes,) = key_codes([all_rows], self.by)
        gone = self._gone(state, rows)
        all_rows, unsent = self._whole(all_rows, rows, codes, gone)
        last = self._last(codes, all_rows)
        old = np.full(len(last.rows), NO_ROW, np.int64)
        kept_rows = np.flatnonzero(~gone[: len(state)])
        old[codes[kept_rows]] = kept_rows
        cleared = self._cleared(all_rows, rows)[last.rows]
        ends = gone[last.rows] | cleared
        new = np.where(ends, NO_ROW, last.rows) if len(last.rows) else last.rows
        table = all_rows.select(self.columns.names)
        changed = _changed(table, old, new)
        kept = self._kept(all_rows, np.where(changed | (new == NO_ROW), last.rows, old), last, new != NO_ROW)
        if cleared.any():
            kept = kept.filter(pa.array(~cleared))
        kept = kept.filter(pa.array(~self.forgotten(kept, clock)))
        return Step(
            kept, self._changes(table, old, new, changed), self._counts(state, last, self._keyed(codes, rows)) | unsent
        )

    def _keyed(self, codes: Numbers, rows: pa.Table) -> Numbers:
        """As if a truncate had a key, which it does not need."""
        if not self.captured:
            return codes
        start = len(codes) - len(rows)
        return np.concatenate([codes[:start], np.where(np.asarray(rows[TRUNCATED]), 0, codes[start:])])

    def _cleared(self, all_rows: pa.Table, rows: pa.Table) -> Mask:
        """Which rows stand before a truncate of their partition."""
        cleared = np.zeros(len(all_rows), bool)
        if not self.captured or not pc.any(rows[TRUNCATED], min_count=0).as_py():
            return cleared
        at = places.places_in(all_rows, ORDER)
        truncates = places.places_in(rows.filter(rows[TRUNCATED]), ORDER)
        for partition in np.unique(truncates.partitions):
            end = truncates.offsets[truncates.partitions == partition].max()
            cleared |= (at.partitions == partition) & (at.offsets < end)
        return cleared

    def _whole(self, all_rows: pa.Table, rows: pa.Table, codes: Numbers, gone: Mask) -> tuple[pa.Table, dict[str, int]]:
        """Rows with the values that were not sent, from the key's row before; how many nobody has sent."""
        if not self.captured or rows[UNSENT].null_count == len(rows):
            return all_rows, {}
        lacks, start = rows[UNSENT].to_pylist(), len(all_rows) - len(rows)
        at = places.places_in(rows, ORDER)
        order = [*range(start), *(start + np.lexsort((at.offsets, at.partitions))).tolist()]
        before: dict[int, int] = {}
        taken: dict[str, dict[int, int]] = {}  # by column: the row that has the value of another; NO_ROW for none
        for row in order:
            code = int(codes[row])
            for name in (lacks[row - start] or ()) if row >= start else ():
                old = before.get(code, NO_ROW)
                known = taken.setdefault(name, {})
                known[row] = known.get(old, old)
            before[code] = NO_ROW if gone[row] else row
        for name, known in taken.items():
            source = np.arange(len(all_rows))
            source[list(known)] = list(known.values())
            filled = all_rows[name].take(pa.array(source, mask=source == NO_ROW))
            all_rows = _with(all_rows, name, filled)
        lost = sum(value == NO_ROW for known in taken.values() for value in known.values())
        return all_rows, {"unsent": lost} if lost else {}

    def forgotten(self, state: pa.Table, clock: Clock) -> Mask:
        """Deletions that are needed no more."""
        return forgotten(state, clock, self.deletes_kept) if self._is_ordered else np.zeros(len(state), bool)

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        """What the key has now."""
        return shown(state.filter(pc.is_null(state[GONE_SINCE])) if self._is_ordered else state)

    @property
    def _held(self) -> pa.Schema:
        return self.state_schema.remove(len(self.state_schema) - 1)

    def _as_state(self, rows: pa.Table, clock: Clock) -> pa.Table:
        if not self._is_ordered:
            return rows
        return rows.append_column(GONE_SINCE, gone_since(rows[GONE], clock))

    def _gone(self, state: pa.Table, rows: pa.Table) -> Mask:
        kept = np.asarray(state[GONE_SINCE].is_valid()) if self._is_ordered else np.zeros(len(state), bool)
        return np.concatenate([kept, np.asarray(rows[GONE])])

    def _last(self, codes: Numbers, rows: pa.Table) -> Last:
        if self.across:
            return places.last_by_place(codes, places.places_in(rows, ORDER))
        last = places.largest(codes, pc.fill_null(rows[ORDER], FIRST).to_numpy())
        return Last(last, np.zeros(0, np.int64), np.zeros(0, bool))

    def _kept(self, rows: pa.Table, taken: Numbers, last: Last, stays: Mask) -> pa.Table:
        """The row that each key has, with the place of its last one; of a deletion the key's columns alone."""
        if not self._is_ordered:
            taken, last, stays = taken[stays], last._replace(rows=last.rows[stays]), stays[stays]
        kept = rows.take(pa.array(taken))
        for name in (ORDER, *((PARTITION,) if self.across else ())):
            kept = _with(kept, name, rows[name].take(pa.array(last.rows)))
        if self.across:
            kept = _with(kept, RECORDED, pa.array(last.times, mask=last.times == FIRST))
        for name in self.columns.names if not stays.all() else ():
            if name not in self.by:
                kept = _with(kept, name, pc.if_else(pa.array(stays), kept[name], pa.nulls(len(kept), kept[name].type)))
        return kept.append_column(DUE, pa.nulls(len(kept), pa.int64()))

    def _counts(self, state: pa.Table, last: Last, codes: Numbers) -> dict[str, int]:
        """Only what there is: most tables have none of either."""
        keyless = losses(without_key=int(np.count_nonzero(codes[len(state) :] == NO_KEY)))
        if not self.across:
            return keyless
        found = keyless | {"moved": int(np.count_nonzero(last.moved)), "without_place": state[PARTITION].null_count}
        return {name: count for name, count in found.items() if count}

    def _changes(self, rows: pa.Table, old: Numbers, new: Numbers, changed: Mask) -> pa.Table:
        is_there, stays = old != NO_ROW, new != NO_ROW
        gone, come = changed & is_there, changed & stays
        return of_changes(
            rows.take(pa.array(old[gone])),
            rows.take(pa.array(new[come])),
            pc.if_else(pa.array(stays[gone]), BEFORE, DELETE),
            pc.if_else(pa.array(is_there[come]), AFTER, INSERT),
        )


def _with(rows: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _changed(rows: pa.Table, old: Numbers, new: Numbers) -> Mask:
    """For which codes there is something to tell."""
    is_there, stays = old != NO_ROW, new != NO_ROW
    changed: Mask = is_there | stays
    both = np.flatnonzero(is_there & stays)
    changed[both] = (old[both] != new[both]) & ~_equal(rows, old[both], new[both])
    return changed


def _equal(rows: pa.Table, left: Numbers, right: Numbers) -> Mask:
    equal = np.ones(len(left), bool)
    for column in rows.columns:
        one, other = column.take(pa.array(left)), column.take(pa.array(right))
        if pa.types.is_nested(column.type):
            equal &= np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool)
        else:
            same = pc.fill_null(pc.equal(one, other), False)
            equal &= np.asarray(pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))
    return equal


@dataclass(frozen=True, slots=True)
class Netting:
    columns: pa.Schema  # of the changelog
    by: tuple[str, ...]
    name: str = "as_upserts"
    version: int = 1

    @property
    def state_schema(self) -> pa.Schema:
        return pa.schema([(HASH, pa.int64()), (DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        rows = [field for field in self.columns if field.name not in (OP, SEQ)]
        return pa.schema([*rows, pa.field(DELETED, pa.bool_())])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        return Step(state, upserts_of(rows.select(self.columns.names).cast(self.columns), self.by))
