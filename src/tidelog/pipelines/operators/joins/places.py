"""Which record of a key is the last one, where a key's records are in several partitions: one order, everywhere. Pure.

    place       _recorded   int64 or null   the time of the record, in microseconds
                _partition  int64 or null
                _order      int64 or null   the offset; beside a place, ORDER is that

Rules:
- The last record is the one with the largest (time, partition, offset), where a record's time counts as at least that
  of the key's record before it in its partition: a running maximum. Within a partition this is the order of offsets,
  and over all it is a total order.
- So of each partition its last record of the key stands for it, with the largest time of them all. Of two partitions
  the larger (time, partition) is in front.
- State has the winner's place alone, with the time that it counts as. That is enough wherever the records of a
  partition come in the order of their offsets. A record of the winner's partition is behind the winner. Of another
  partition all that came before was behind the winner in (time, partition); so either the new record is in front of the
  winner by its own time, which is then the largest of its partition, or its partition stays behind.
- A row without a partition lies before all that have one: it is from state that had no places. So does a row of a seed,
  whose partition is SEED.
- A key has *moved* where its records are in more than one partition. Rows that lie before all do not count for this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.operators.joins.matching import NO_KEY, NO_ROW, Mask, Numbers

RECORDED = "_recorded"
PARTITION = "_partition"
FIELDS = (pa.field(RECORDED, pa.int64()), pa.field(PARTITION, pa.int64()))

FIRST = -(2**63)  # as which a number counts that is null
SEED = -1  # the partition of what lies before all records


class Places(NamedTuple):
    """Of rows: their times, partitions and offsets; FIRST where there is none."""

    times: Numbers
    partitions: Numbers
    offsets: Numbers

    def at(self, places: Numbers) -> Places:
        return Places(self.times[places], self.partitions[places], self.offsets[places])


class Last(NamedTuple):
    """For each code: the place of its last row, the time that this counts as, and whether the key has moved."""

    rows: Numbers
    times: Numbers
    moved: Mask


def places_in(rows: pa.Table, offset: str) -> Places:
    return Places(*(pc.fill_null(rows[name], FIRST).to_numpy() for name in (RECORDED, PARTITION, offset)))


def largest(codes: Numbers, numbers: Numbers) -> Numbers:
    """For each code the place of its row with the largest number, and of equal ones the last; NO_ROW where none is.

    Without a sort: that was a third of a step.
    """
    count = int(codes.max(initial=NO_KEY)) + 1
    rows = np.flatnonzero(codes != NO_KEY)
    most = _most(codes[rows], numbers[rows], count)
    rows = rows[numbers[rows] == most[codes[rows]]]
    last = np.full(count, NO_ROW, np.int64)
    last[codes[rows]] = rows  # the last assignment of an index stays
    return last


def last_by_place(codes: Numbers, places: Places) -> Last:
    """Most keys are in one partition: only those in several are sorted."""
    rows = np.flatnonzero(codes != NO_KEY)
    own, among = codes[rows], places.at(rows)
    count = int(codes.max(initial=NO_KEY)) + 1
    last, times = largest(codes, places.offsets), _most(own, among.times, count)
    any_of = np.empty(count, np.int64)
    any_of[own] = among.partitions
    other = own[among.partitions != any_of[own]]  # keys that are not in one partition alone
    moved = np.zeros(count, bool)
    if len(other):
        moved[other] = True
        several = np.flatnonzero(moved[own])
        fronts = _fronts(own[several], among.at(several))
        found = rows[several[fronts.rows]]
        last[codes[found]], times[codes[found]] = found, fronts.times
        moved = _moved(own[several], among.partitions[several], count)
    return Last(last, times, moved)


def by_place(groups: tuple[Numbers, ...], places: Places) -> tuple[Numbers, Numbers]:
    """An order of rows in which the last one of each group is behind its others, and the time that each counts as.

    Where a row counts as more than its own time, it is that of its whole partition: of it, only the last row can win.
    """
    order = np.lexsort((places.offsets, places.partitions, *groups))
    times = np.empty(len(order), np.int64)
    if len(order):
        starts = _starts((*groups, places.partitions), order)
        most = np.maximum.reduceat(places.times[order], starts)
        times[order] = np.repeat(most, np.diff(np.append(starts, len(order))))
    return np.lexsort((places.offsets, places.partitions, times)), times


class _Fronts(NamedTuple):
    rows: Numbers
    times: Numbers


def _fronts(codes: Numbers, places: Places) -> _Fronts:
    """The last row of each code, and the time that it counts as."""
    order, times = by_place((codes,), places)
    last = np.full(int(codes.max(initial=NO_KEY)) + 1, NO_ROW, np.int64)
    last[codes[order]] = order
    rows = last[last != NO_ROW]
    return _Fronts(rows, times[rows])


def _starts(groups: tuple[Numbers, ...], order: Numbers) -> Numbers:
    """Where, in this order, each group begins."""
    begins = np.zeros(len(order), bool)
    begins[0] = True
    for group in groups:
        begins[1:] |= group[order][1:] != group[order][:-1]
    return np.flatnonzero(begins)


def _most(codes: Numbers, numbers: Numbers, count: int) -> Numbers:
    most = np.full(count, FIRST)
    np.maximum.at(most, codes, numbers)
    return most


def _moved(codes: Numbers, partitions: Numbers, count: int) -> Mask:
    real = partitions > SEED
    lowest = np.full(count, 2**63 - 1)
    np.minimum.at(lowest, codes[real], partitions[real])
    moved: Mask = _most(codes[real], partitions[real], count) > lowest
    return moved
