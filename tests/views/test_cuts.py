"""Builds of a view that is older than its marks: of what lies before the first one that is kept, little is held.

However it is cut, and whoever has which partition, what is applied is what the records before the ends make, and beyond
where a shared build may be cut each partition ends with a micro-batch. Measured are the rows that are held, never time
or memory. Without a broker; `test_shared_builds.py` has processes that die.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.consumer import Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Ends, Mark, Sources
from tidelog.record.columns import Row as Record
from tidelog.views import reading as reading_module
from tidelog.views.changes import encode
from tidelog.views.reading import Pace, Reading
from tidelog.views.stores.store import Place
from views.test_reading import MARKS, NOW_MS, Log, fetched, micro_batches
from views.test_shares import Shared, Sharer, settle, work_at_random
from views.writing import REVENUE, Rows, row_of

BATCH_ROWS = 16
HELD_ROWS = 40
ROW_BYTES = sum(map(len, encode(REVENUE, row_of("000 00", 100))))


def many(number: int) -> Rows:
    """A micro-batch whose rows have all the same size, and keys that no other one has."""
    return {f"{number:03} {item:02}": 100 + number for item in range(BATCH_ROWS)}


def held_rows(reading: Reading) -> int:
    runs = [run for inbox in reading._inboxes.values() for run in inbox._runs]
    return sum(columns.count for run in runs for columns in run.columns)


def fold(records: Sequence[tuple[TopicPartition, Record]], ends: Ends) -> dict[str, int]:
    """The oracle: the records before `ends`, one after the other."""
    rows: dict[str, int] = {}
    for at, record in records:
        if record.offset < ends.get(at, 0):
            assert record.key is not None
            product = json.loads(record.key)["product"]
            after = None if record.value is None else json.loads(record.value)["after"]
            rows.pop(product, None)
            if after is not None:
                rows[product] = after["revenue"]
    return rows


@contextmanager
def holding(size: int) -> Iterator[None]:
    before, reading_module.HELD_BYTES = reading_module.HELD_BYTES, size
    try:
        yield
    finally:
        reading_module.HELD_BYTES = before


@dataclass
class Old(Shared):
    """A view of which the first marks are gone. `free` is where the newest mark was when its build began."""

    most: int = 0  # rows that one of them held
    cuts: int = 0
    records: list[tuple[TopicPartition, Record]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at, batches in self.log._batches.items():
            for base, after, data in batches:
                self.records += [(at, row) for row in fetched(at, base, after, data).rows()]

    def fetch(self, sharer: Sharer, count: int) -> None:
        super().fetch(sharer, count)
        if sharer.reading is not None:
            self.most = max(self.most, held_rows(sharer.reading))

    def write(self, sharer: Sharer) -> bool:
        self.cuts += sharer.stretch is not None and sharer.stretch.mark is None
        return super().write(sharer)

    def check(self, before: Place) -> None:
        super().check(before)
        assert self.rows == fold(self.records, self.place.ends)
        for at, end in self.place.ends.items():
            if self.pace is Pace.ASIDE and end >= self.free.get(at, 0):
                assert end in {0, *(mark.ends[at] for mark in self.log.marks)}, "somebody may show it"

    def build(self, *sharers: Sharer) -> None:
        """They fetch by turns, a batch of each partition at a time, until nothing comes any more."""
        before: object = None
        while before != (before := [one.reading.wanted() for one in sharers if one.reading is not None]):
            for sharer in sharers:
                self.fetch(sharer, 1)
                self.take(sharer)
                while sharer.stretch is not None:
                    self.write(sharer)
                    self.take(sharer)


def old(
    batches: list[Rows], partitions: int, *, kept: int, begun: int, sharers: int = 1, pace: Pace = Pace.ASIDE
) -> Old:
    """Begun when there were `begun` marks, of which the first `kept` are gone."""
    log = Log(batches, partitions)
    free = dict(log.marks[begun - 1].ends) if kept < begun else {}
    found = Old(log, [Sharer() for _ in range(sharers)], kept=kept, free=free, pace=pace)
    for index, sharer in enumerate(found.sharers):
        found.assign(sharer, log.partitions[index::sharers])
    return found


@proves("eo.19", "eo.20", "eo.17", "F3")
@given(micro_batches, st.integers(1, 4), st.integers(1, 3), st.data())
def test_wherever_a_shared_build_is_cut_its_rows_are_those_of_its_ends_and_whole_where_it_may_be_shown(
    batches: list[Rows], partitions: int, count: int, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, len(batches) - 1))
    shared = old(batches, partitions, kept=kept, begun=data.draw(st.integers(0, len(batches))))
    shared.sharers = [Sharer() for _ in range(count)]
    with holding(1):
        work_at_random(shared, data)
        settle(shared)
    last = shared.log.marks[-1]
    assert shared.rows == shared.log.oracle.now
    assert (dict(shared.place.ends), shared.place.mark) == (last.ends, last)


@proves("eo.19", "eo.20")
@pytest.mark.parametrize(("pace", "sharers"), [(Pace.ANY, 1), (Pace.ASIDE, 1), (Pace.ASIDE, 3)])
def test_who_builds_aside_never_holds_all_that_lies_before_the_first_mark(pace: Pace, sharers: int) -> None:
    shared = old([many(number) for number in range(60)], 3, kept=50, begun=55, sharers=sharers, pace=pace)
    with holding(HELD_ROWS * ROW_BYTES):
        shared.build(*shared.sharers)
    assert shared.rows == shared.log.oracle.now
    assert shared.most <= HELD_ROWS + 3 * BATCH_ROWS, "what may be held, and one fetch"
    assert shared.cuts > 5


@proves("eo.20")
def test_a_shared_build_of_which_nobody_knows_when_it_began_holds_all_of_it() -> None:
    """So the measure can tell."""
    shared = old([many(number) for number in range(60)], 3, kept=50, begun=0)
    with holding(HELD_ROWS * ROW_BYTES):
        shared.build(*shared.sharers)
    assert shared.rows == shared.log.oracle.now
    assert shared.cuts == 0 and shared.most >= 51 * BATCH_ROWS


@proves("eo.19", "eo.20")
def test_who_takes_over_a_partition_that_is_behind_beside_one_that_is_ahead_holds_little() -> None:
    shared = old([many(number) for number in range(60)], 2, kept=50, begun=55, sharers=2)
    first, second = shared.sharers
    with holding(HELD_ROWS * ROW_BYTES):
        shared.build(first)  # its partition to the end, and nothing of the other
        shared.most = 0
        shared.assign(second, shared.log.partitions)
        shared.build(second)
    assert shared.rows == shared.log.oracle.now
    assert shared.most <= HELD_ROWS + (2 + 5) * BATCH_ROWS, "and what came after the build began"


@proves("eo.16", "eo.19")
@pytest.mark.parametrize("pace", [Pace.WHOLE, Pace.ANY, Pace.ASIDE])
def test_what_many_partitions_read_ahead_of_the_marks_is_bounded_in_all(pace: Pace) -> None:
    shared = old([many(number) for number in range(40)], 24, kept=0, begun=40, pace=pace)
    (sharer,) = shared.sharers
    reading, most = sharer.reading, 0
    assert reading is not None
    with holding(HELD_ROWS * ROW_BYTES):
        while come := next(rows_that_come(shared, reading), None):
            reading.note(come)
            most = max(most, held_rows(reading))
        assert HELD_ROWS // 2 < most <= HELD_ROWS + BATCH_ROWS
        shared.build(sharer)
    assert shared.rows == shared.log.oracle.now


def rows_that_come(shared: Shared, reading: Reading) -> Iterator[Fetched]:
    for at, position in reading.wanted().items():
        if at != MARKS:
            come = (one for one in shared.log._batches[at] if one[0] >= position)
            yield from (fetched(at, position, after, data) for _, after, data in come)


@proves("eo.16", "eo.19")
def test_marks_are_asked_for_first_and_then_what_the_next_one_needs() -> None:
    reading = old([many(0)], 3, kept=0, begun=0).sharers[0].reading
    assert reading is not None
    first, second, third = reading.partitions
    assert list(reading.wanted()) == [MARKS, first, second, third]
    reading.note_mark(Mark("revenue.v1", "q", 0, Sources(), {second: 5}, NOW_MS))
    assert list(reading.wanted()) == [MARKS, second, first, third]
