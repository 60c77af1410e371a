"""A stream with a table as it was at the time of each row of the stream: the fold of `enrich`.

Rules:
- A row of the table is a *version* of its key, from its time on until that of the next. One that is marked as gone is a
  version too: from then on the key has no row. Of versions with the same time the one with the largest ORDER counts,
  and without one, or of equal ones, the one that came last. Where versions have places, it is the last by these
  (`places.py`), of those that have the same time: no others are looked at for what a record's time counts as.
- A row of the stream waits until the watermark has reached its time. Then it meets the newest version at or before it,
  or none; that is put out and never revised. A key's rows come out by time, those of the same time as they came.
- A row of the stream at or below the watermark is late: the versions of its time may be gone. It is dropped, or put out
  as late (`divert`), and meets nothing. A version that is late is taken: it counts for all that waits or is to come.
- A row of the stream without a time is as one that is late, in a batch too. A version without is none.
- Versions that are kept: all that are newer than the watermark, and of each key the newest at or before it. If that one
  is a deletion, it is forgotten once the watermark is `deletes_kept` beyond it: a version from before it that comes
  later than that would be taken for the newest.
- A row of the stream without a key meets nothing, and is put out at once, unless it is late. A version without is none.
- In a batch nothing is late, and all is due.
- Counted: rows of the stream that came (`in`), were put out (`joined`), and were too late (`dropped`, `diverted`). What
  came and is none of these is waiting.

    state   _side 0   a row that waits: its key, time (microseconds) and left columns; due at its time
            _side 1   a version: its key, time, _gone and right columns; due when it is needed no more: at the time of
                      the next one, and a deletion `deletes_kept` behind its own; the newest row of a key is never due
            _order    of a version, where an order is declared. Version 1 had none: it went by arrival alone
            _recorded, _partition   of a version, where they have places; _order is the offset then. Version 3 has them
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.control.counts import losses
from tidelog.pipelines.operators.joins import places
from tidelog.pipelines.operators.joins.matching import (
    NO_KEY,
    NO_ROW,
    Mask,
    Numbers,
    in_order,
    key_codes,
    needed_versions,
    newest,
    taken,
)
from tidelog.pipelines.operators.joins.places import RECORDED
from tidelog.pipelines.operators.joins.sides import GONE, LEFT, ORDER, Columns, added, of_table
from tidelog.pipelines.operators.state.fold import DUE, END_OF_TIME, HASH, SIDE, Clock, Step

TIME = "_time"  # timestamp in rows, microseconds in state: event time of a row, start of a version
LATE = "_late"  # boolean, in the output: a row that came too late to be joined
MATCHED = "_matched"  # boolean, in the output: a version was found
NO_TIME = -(2**63)
NEVER = 2**63 - 1
MICROSECONDS = 1000  # of a millisecond

ENRICHED = pa.schema([(LATE, pa.bool_()), (MATCHED, pa.bool_())])  # and then the columns of both sides


@dataclass(frozen=True, slots=True)
class AsOf:
    columns: Columns
    deletes_kept: int  # ms
    divert: bool = False
    on: tuple[tuple[str, str], ...] = ()  # for who goes on with the state: it has the names of the left alone
    order: str | None = None  # the column that ORDER is made of; one that counts within a micro-batch alone is none
    order_in: str | None = None  # the unit of ORDER
    across: tuple[str, ...] = ()  # of a place: the columns of the time and of the partition
    name: str = "enrich as of event time"

    @property
    def version(self) -> int:
        return 3 if self.across else 1 if self.order is None else 2

    def upgrade(self, state: pa.Table, version: int) -> pa.Table:
        """What was kept without an order, or without a place, is before all that have one."""
        for field in self._order:
            if field.name not in state.schema.names:
                state = state.append_column(field.name, pa.nulls(len(state), pa.int64()))
        return state

    @property
    def _order(self) -> list[pa.Field]:
        order = [] if self.order is None and not self.across else [pa.field(ORDER, pa.int64())]
        return [*order, *(places.FIELDS if self.across else ())]

    @property
    def state_schema(self) -> pa.Schema:
        head = pa.schema([(HASH, pa.int64()), (SIDE, pa.int8()), (TIME, pa.int64()), (GONE, pa.bool_())])
        return pa.schema([*head, *self._order, *self.columns.all, pa.field(DUE, pa.int64())])

    @property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*ENRICHED, *self.columns.all])

    def step(self, state: pa.Table, rows: pa.Table, clock: Clock) -> Step:
        held = self.state_schema.remove(len(self.state_schema) - 1)
        all_rows = added(state, _with_microseconds(in_order(rows, ORDER)), held)
        is_left = all_rows[SIDE].to_numpy() == LEFT
        times = pc.fill_null(all_rows[TIME], NO_TIME).to_numpy()
        (codes,) = key_codes([all_rows], self.columns.keys.names)
        reached = reached_by(clock)
        untimed, keyless = times == NO_TIME, codes == NO_KEY
        late = is_left & (untimed | _is_late(times, len(state), clock.late))
        due = is_left & ~late & (keyless | (times <= reached))
        all_rows, versions = self._by_order(all_rows, codes, times, np.flatnonzero(~is_left & ~untimed & ~keyless))
        too_late = np.flatnonzero(late & self.divert)
        output = self._joined(all_rows, codes, times, np.flatnonzero(due), versions, too_late)
        kept = versions[needed_versions(codes[versions], times[versions], reached)]
        kept = kept[~self._forgotten(all_rows, times, kept, reached)]
        waiting = np.flatnonzero(is_left & ~late & ~due)
        lost = (~is_left & (untimed | keyless))[len(state) :]  # versions, which count as come in where they are dropped
        counts = {"in": int(np.count_nonzero(is_left[len(state) :] | lost)), "joined": int(np.count_nonzero(due))}
        counts["diverted" if self.divert else "dropped"] = int(np.count_nonzero(late))
        counts |= self._lost(is_left, late, untimed, keyless, len(state))
        due_at = np.concatenate([_milliseconds(times[waiting]), self._needed_until(all_rows, codes, times, kept)])
        return Step(_state(all_rows, np.concatenate([waiting, kept]), due_at), output, counts)

    def _lost(self, is_left: Mask, late: Mask, untimed: Mask, keyless: Mask, known: int) -> dict[str, int]:
        """Left rows that are late or have no time, unless they are put out, and versions without a time or a key."""
        new = np.arange(len(is_left)) >= known
        dropped = np.zeros(len(is_left), bool) if self.divert else is_left & late
        without_time = (dropped & untimed) | (new & ~is_left & untimed)
        return losses(
            late=int(np.count_nonzero(dropped & ~untimed)),
            without_time=int(np.count_nonzero(without_time)),
            without_key=int(np.count_nonzero(new & ~is_left & ~untimed & keyless)),
        )

    def held(self, state: pa.Table) -> int:
        return int(np.count_nonzero(state[SIDE].to_numpy() == LEFT))

    def answer(self, state: pa.Table, clock: Clock) -> pa.Table:
        """The versions of the key that are still needed."""
        return of_table(self.columns, state)

    def _by_order(self, rows: pa.Table, codes: Numbers, times: Numbers, versions: Numbers) -> tuple[pa.Table, Numbers]:
        """Those of the state and of this step together; where no order is declared, as they came.

        Where they have places, rows are given the time that each counts as.
        """
        if self.across:
            own = places.places_in(rows, ORDER)
            by_place, counts_as = places.by_place((times[versions], codes[versions]), own.at(versions))
            recorded = own.times.copy()
            recorded[versions] = counts_as
            told = pa.array(recorded, mask=recorded == places.FIRST)
            return rows.set_column(rows.schema.get_field_index(RECORDED), RECORDED, told), versions[by_place]
        if self.order is None:
            return rows, versions
        order = pc.fill_null(rows[ORDER], NO_TIME).to_numpy()[versions]
        return rows, versions[np.argsort(order, kind="stable")]

    def _joined(
        self, rows: pa.Table, codes: Numbers, times: Numbers, due: Numbers, versions: Numbers, too_late: Numbers
    ) -> pa.Table:
        due = due[np.argsort(times[due], kind="stable")]
        found = newest(codes[versions], times[versions], codes[due], times[due])
        found = np.where(found == NO_ROW, NO_ROW, versions[found] if len(versions) else NO_ROW)
        gone = np.asarray(pc.fill_null(rows[GONE], False))
        found[(found != NO_ROW) & gone[found]] = NO_ROW
        lefts = np.concatenate([due, too_late])
        rights = np.concatenate([found, np.full(len(too_late), NO_ROW)])
        head = [pa.array(np.arange(len(lefts)) >= len(due)), pa.array(rights != NO_ROW)]
        own = rows.select([*self.columns.keys.names, *self.columns.left.names]).take(pa.array(lefts))
        other = taken(rows.select(self.columns.right.names), rights)
        return pa.table([*head, *own.columns, *other.columns], schema=self.output_schema)

    def _forgotten(self, rows: pa.Table, times: Numbers, kept: Numbers, reached: int) -> Mask:
        """Deletions before which nothing is kept, and that nothing late can be below any more.

        `needed_versions` keeps at most one version a key at or before what was reached: the first one of it.
        """
        gone = np.asarray(pc.fill_null(rows[GONE], False))[kept]
        forgotten: Mask = gone & (times[kept] <= reached - self.deletes_kept * MICROSECONDS)
        return forgotten

    def _needed_until(self, rows: pa.Table, codes: Numbers, times: Numbers, kept: Numbers) -> Numbers:
        """When each version is to be looked at again, in ms: beyond what was reached. They are by key and time."""
        until = np.full(len(kept), NEVER)
        followed = np.flatnonzero(codes[kept][:-1] == codes[kept][1:])
        until[followed] = _milliseconds(times[kept][followed + 1])
        gone = np.asarray(pc.fill_null(rows[GONE], False))[kept]
        until[gone] = np.minimum(until[gone], _milliseconds(times[kept][gone]) + self.deletes_kept)
        return until


def reached_by(clock: Clock) -> int:
    """Up to which microsecond event time has come."""
    return NO_TIME if clock.watermark is None else min(clock.watermark, END_OF_TIME // MICROSECONDS) * MICROSECONDS


def _with_microseconds(rows: pa.Table) -> pa.Table:
    place = rows.column_names.index(TIME)
    return rows.set_column(place, TIME, pc.cast(rows[TIME], pa.int64()))


def _is_late(times: Numbers, held: int, watermark: int | None) -> Mask:
    """Only what has just come can be late."""
    late = np.zeros(len(times), bool)
    if watermark is not None:
        late[held:] = times[held:] <= watermark * MICROSECONDS
    return late


def _milliseconds(times: Numbers) -> Numbers:
    return -(-times // MICROSECONDS)


def _state(rows: pa.Table, places: Numbers, due: Numbers) -> pa.Table:
    return rows.take(pa.array(places)).append_column(DUE, pa.array(due, pa.int64(), mask=due == NEVER))
