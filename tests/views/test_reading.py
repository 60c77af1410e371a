"""Stretches: however marks and rows arrive, whole micro-batches are applied, and the view after each is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.consumer import Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.control.marks import Mark, Sources
from tidelog.control.marks import encode as encode_mark
from tidelog.errors import PeerError
from tidelog.record.columns import encode as encode_batch
from tidelog.record.partitioner import partition_of
from tidelog.views import reading as reading_module
from tidelog.views.changes import Stretch, encode
from tidelog.views.reading import LeftBehind, Pace, Reading, is_left_behind, is_news, reached, there
from tidelog.views.stores.store import Place
from views.writing import REVENUE, Oracle, Rows, row_of

TOPIC = "revenue.v1"
MARKS = TopicPartition("__tidelog.marks.revenue.v1", 0)
NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000

micro_batches = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 99), max_size=5), min_size=1, max_size=8
)


def fetched(at: TopicPartition, position: int, next_offset: int, batches: bytes) -> Fetched:
    return Fetched(at, position, next_offset, memoryview(batches), next_offset, next_offset, 0, 0)


class Log:
    """A view's topic and its marks, as they lie there when all is written; `arrive` gives what comes next of one."""

    def __init__(self, batches: list[Rows], partitions: int) -> None:
        self.partitions = [TopicPartition(TOPIC, index) for index in range(partitions)]
        self.oracle = Oracle()
        self.oracle.after[tuple((at, 0) for at in self.partitions)] = {}
        self.marks: list[Mark] = []
        self._batches: dict[TopicPartition, list[tuple[int, int, bytes]]] = {at: [] for at in self.partitions}
        self._ends = dict.fromkeys(self.partitions, 0)
        self._next = dict.fromkeys(self.partitions, 0)  # after the marker of the last transaction
        for number, rows in enumerate(batches):
            self._write(number, rows)
        self._arrived = dict.fromkeys([*self.partitions, MARKS], 0)

    def _write(self, number: int, rows: Rows) -> None:
        by_partition: dict[TopicPartition, list[tuple[bytes, bytes | None, tuple[()], int]]] = {}
        for product, revenue in rows.items():
            key, value = encode(REVENUE, row_of(product, revenue), gone=revenue is None)
            here = by_partition.setdefault(self.partitions[partition_of(key, len(self.partitions))], [])
            here += [(key, value, (), 0)] if revenue is not None else [(key, value, (), 0), (key, None, (), 0)]
        for at, records in by_partition.items():
            base = self._next[at]
            data = bytes(encode_batch(records, base_offset=base))
            self._ends[at], self._next[at] = base + len(records), base + len(records) + 1
            self._batches[at].append((base, self._next[at], data))
        self.marks.append(Mark("revenue.v1", "q", number, Sources(), dict(self._ends), NOW_MS))
        self.oracle.note(rows, self.marks[-1])

    def arrive(self, at: TopicPartition, count: int, position: int) -> Fetched | None:
        """The next `count` batches, as one answer to a fetch."""
        first = self._arrived[at]
        if at == MARKS:
            come = [
                (index, index + 1, bytes(encode_batch([(*encode_mark(mark), (), 0)], base_offset=index)))
                for index, mark in enumerate(self.marks)
            ][first : first + count]
        else:
            come = self._batches[at][first : first + count]
        if not come:
            return None
        self._arrived[at] += len(come)
        return fetched(at, position, come[-1][1], b"".join(data for _, _, data in come))


def reading_of(log: Log, place: Place | None = None, pace: Pace = Pace.WHOLE) -> Reading:
    start = place or Place(1, {}, None)
    starts = dict.fromkeys(log.partitions, 0)
    return Reading(REVENUE, log.partitions, start, starts, marks_from=(MARKS, 0), pace=pace, now_ms=lambda: NOW_MS)


def apply(rows: dict[str, int], stretch: Stretch) -> None:
    for key, change in stretch.latest().items():
        if change.after is None:
            rows.pop(str(key[0]), None)
        else:
            rows[str(key[0])] = change.after["revenue"]  # type: ignore[assignment]


def drain(reading: Reading) -> Iterator[Stretch]:
    while (stretch := reading.next()) is not None:
        yield stretch
        reading.applied(stretch)


def deliver(reading: Reading, log: Log, at: TopicPartition, count: int) -> None:
    position = reading.wanted().get(at)
    if position is not None and (come := log.arrive(at, count, position)) is not None:
        reading.note(come)


@proves("eo.16", "F2")
@given(micro_batches, st.integers(1, 4), st.data())
def test_however_marks_and_partitions_arrive_the_view_is_that_of_a_mark_after_every_stretch(
    batches: list[Rows], partitions: int, data: st.DataObject
) -> None:
    log = Log(batches, partitions)
    reading, rows = reading_of(log), dict[str, int]()
    sources = [*log.partitions, MARKS]
    arrivals = data.draw(st.lists(st.tuples(st.sampled_from(sources), st.integers(1, 3)), max_size=40))
    for at, count in [*arrivals, *((at, 99) for at in sources)]:
        deliver(reading, log, at, count)
        for stretch in drain(reading):
            apply(rows, stretch)
            assert rows == log.oracle.at(stretch.ends)
            assert stretch.mark is not None and stretch.mark.ends == stretch.ends
    assert rows == log.oracle.now
    assert reading.ends == log.marks[-1].ends


@proves("eo.16", "eo.17")
@given(micro_batches, st.integers(1, 3), st.data())
def test_who_is_killed_after_any_stretch_goes_on_from_its_place(
    batches: list[Rows], partitions: int, data: st.DataObject
) -> None:
    log = Log(batches, partitions)
    rows, place = dict[str, int](), Place(1, {}, None)
    for _ in range(len(batches) + 1):
        reading = reading_of(log, place)
        log._arrived = dict.fromkeys((*log.partitions, MARKS), 0)
        for at in log.partitions:
            reading._inboxes[at].position = reading.ends[at]
            while (come := log.arrive(at, 1, reading.ends[at])) is not None:
                if come.next_offset > reading.ends[at]:
                    reading.note(come)
        deliver(reading, log, MARKS, data.draw(st.integers(0, len(batches))))
        for stretch in drain(reading):
            apply(rows, stretch)
            place = Place(1, stretch.ends, stretch.mark)
            assert rows == log.oracle.at(stretch.ends)
    assert rows == log.oracle.at(place.ends or dict.fromkeys(log.partitions, 0))


@proves("eo.19")
@given(micro_batches, st.integers(1, 3), st.data())
def test_who_builds_aside_holds_little_and_is_whole_at_marks_alone(
    batches: list[Rows], partitions: int, data: st.DataObject
) -> None:
    log = Log(batches, partitions)
    reading, rows = reading_of(log, pace=Pace.ANY), dict[str, int]()
    sources = [*log.partitions, MARKS]
    arrivals = data.draw(st.lists(st.tuples(st.sampled_from(sources), st.integers(1, 2)), max_size=40))
    held, reading_module.HELD_BYTES = reading_module.HELD_BYTES, 1
    try:
        # What is not wanted does not come: a partition has its turn when those before it hold nothing any more.
        for at, count in [*arrivals, *((at, 99) for at in sources * (partitions + 2))]:
            deliver(reading, log, at, count)
            for stretch in drain(reading):
                apply(rows, stretch)
            if reading.is_whole:
                assert rows == log.oracle.at(reading.ends)
    finally:
        reading_module.HELD_BYTES = held
    assert reading.is_whole
    assert rows == log.oracle.now


@proves("eo.16")
def test_a_micro_batch_whose_rows_are_in_one_partition_or_in_none_ends_where_the_others_stood() -> None:
    log = Log([{"a": 1}, {}, {"a": 2}], 4)
    reading = reading_of(log)
    deliver(reading, log, MARKS, 1)
    assert reading.next() is None, "its rows are not here"
    for at in log.partitions:
        deliver(reading, log, at, 1)
    first = reading.next()
    assert first is not None and [change.key for change in first.changes] == [("a",)]
    assert sorted(first.ends.values()) == [0, 0, 0, 1]
    reading.applied(first)
    deliver(reading, log, MARKS, 1)
    second = reading.next()
    assert second is not None and second.mark is not None
    assert (list(second.changes), second.ends, second.mark.batch_id) == ([], first.ends, 1)


@proves("eo.16")
def test_offsets_that_compaction_has_taken_are_passed() -> None:
    at = TopicPartition(TOPIC, 0)
    reading = Reading(
        REVENUE, [at], Place(1, {}, None), {at: 0}, marks_from=(MARKS, 0), pace=Pace.WHOLE, now_ms=lambda: NOW_MS
    )
    key, value = encode(REVENUE, row_of("a", 7))
    reading.note(fetched(at, 0, 41, bytes(encode_batch([(key, value, (), 0)], base_offset=40))))
    reading.note_mark(Mark("revenue.v1", "q", 9, Sources(), {at: 12}, NOW_MS))
    stretch = reading.next()
    assert stretch is not None and (list(stretch.changes), stretch.ends) == ([], {at: 12})
    reading.applied(stretch)
    reading.note_mark(Mark("revenue.v1", "q", 20, Sources(), {at: 41}, NOW_MS))
    stretch = reading.next()
    assert stretch is not None and [change.offset for change in stretch.changes] == [40]


@proves("eo.18")
def test_a_topic_without_marks_is_applied_by_what_was_read() -> None:
    at = TopicPartition("any", 0)
    reading = Reading(REVENUE, [at], Place(1, {}, None), {at: 3}, marks_from=None, pace=Pace.BATCHES)
    assert reading.next() is None and reading.wanted() == {at: 3}
    key, value = encode(REVENUE, row_of("a", 7))
    reading.note(fetched(at, 3, 5, bytes(encode_batch([(key, value, (), 0)] * 2, base_offset=3))))
    stretch = reading.next()
    assert stretch is not None and (len(stretch.changes), stretch.ends, stretch.mark) == (2, {at: 5}, None)
    reading.applied(stretch)
    assert reading.next() is None and reading.is_whole


@proves("eo.16")
def test_what_is_read_ahead_of_its_mark_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "READ_AHEAD_BYTES", 1)
    log = Log([{"a": 1}, {"a": 2}, {"a": 3}], 1)
    (at,) = log.partitions
    reading = reading_of(log)
    assert at in reading.wanted()
    deliver(reading, log, at, 1)
    assert at not in reading.wanted(), "no mark asks for more"
    deliver(reading, log, MARKS, 3)
    assert reading.next() is not None
    assert at in reading.wanted(), "the next mark does"


@proves("eo.16")
def test_a_record_that_is_no_change_stops_the_applier_and_says_where_it_lies() -> None:
    log = Log([{"a": 1}], 1)
    reading = reading_of(log)
    (at,) = log.partitions
    reading.note(fetched(at, 0, 1, bytes(encode_batch([(b"{}", b"hello", (), 0)], base_offset=0))))
    deliver(reading, log, MARKS, 1)
    with pytest.raises(PeerError, match=r"revenue.v1\[0\], offset 0: not a change of this view"):
        reading.next()


# Decisions ------------------------------------------------------------------------------------------------------------


@proves("eo.16")
def test_marks_are_there_in_their_order() -> None:
    a, b = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    known: list[Any] = [{a: 1, b: 0}, {a: 1, b: 4}, {a: 3, b: 4}]
    assert [there(known, {a: x, b: y}) for x, y in ((0, 9), (1, 0), (9, 3), (2, 4), (3, 4))] == [0, 1, 1, 2, 3]
    assert reached({}, {}) and reached({a: 0}, {})


@proves("eo.16", "eo.17")
def test_a_mark_is_news_once() -> None:
    at = TopicPartition(TOPIC, 0)

    def mark(batch: int, end: int, query: str = "q") -> Mark:
        return Mark("s", query, batch, Sources(), {at: end}, 0)

    last = mark(5, 10)
    news = [is_news(one, one.ends, {at: 10}, last) for one in (mark(4, 9), mark(5, 10), mark(6, 10), mark(6, 11))]
    assert news == [False, False, True, True]
    assert is_news(mark(0, 11, "other"), {at: 11}, {at: 10}, last)
    assert is_news(mark(0, 0), {at: 0}, {at: 0}, None)


@proves("eo.19", "eo.15")
def test_who_was_away_beyond_the_horizon_is_left_behind_and_a_quiet_view_is_not() -> None:
    def mark(days_ago: float) -> Mark:
        return Mark("s", "q", int(100 - days_ago), Sources(), {}, int(NOW_MS - days_ago * DAY_MS))

    def judged(last: float, first: float, *, seen: bool) -> bool:
        return is_left_behind(mark(last), mark(first), seen=seen, now_ms=NOW_MS, horizon_ms=7 * DAY_MS)

    assert not judged(1, 0.5, seen=True)
    assert not judged(30, 0.5, seen=True), "nothing happened for a month, and then something did"
    assert judged(30, 0.5, seen=False), "what came after its mark may be gone, with the mark"
    assert judged(30, 8, seen=True), "the next one is beyond it"
    assert not judged(6, 0, seen=False)
    assert not is_left_behind(None, mark(1), seen=False, now_ms=NOW_MS, horizon_ms=7 * DAY_MS)


@proves("eo.19")
def test_only_who_is_looked_at_is_left_behind() -> None:
    old = Mark("revenue.v1", "q", 9, Sources(), {TopicPartition(TOPIC, 0): 3}, NOW_MS - 8 * DAY_MS)
    log = Log([{"a": 1}], 1)
    reading_of(log, pace=Pace.ANY).note_mark(old)
    with pytest.raises(LeftBehind, match="built again"):
        reading_of(log, pace=Pace.WHOLE).note_mark(old)


@proves("eo.16", "eo.19")
def test_what_was_fetched_for_a_reading_that_was_given_up_is_not_taken_for_what_comes_next() -> None:
    log = Log([{"a": 1}, {"b": 2}, {"c": 3}], 1)
    (at,) = log.partitions
    late = fetched(at, 2, 6, log._batches[at][1][2] + log._batches[at][2][2])  # as the old one had asked for
    reading, rows = reading_of(log), dict[str, int]()
    reading.note(late)
    assert reading.wanted()[at] == 0
    for source in (at, MARKS):
        deliver(reading, log, source, 99)
    for stretch in drain(reading):
        apply(rows, stretch)
    assert rows == {"a": 1, "b": 2, "c": 3}
