"""Shares of a view, without a process or a broker: whatever is assigned to whom, taken, kept back and written late.

The place of a store decides (`places.moved`): a row is applied once and in order, and the mark never claims more than
all partitions have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control import catalog
from tidelog.control.marks import Ends
from tidelog.control.marks import encode as encode_mark
from tidelog.errors import AnotherApplier
from tidelog.record.columns import encode as encode_batch
from tidelog.views import lifecycle
from tidelog.views.changes import Stretch
from tidelog.views.following import is_due, is_due_of, to_forget
from tidelog.views.reading import Pace, Reading, reached
from tidelog.views.stores.places import is_to_show, moved
from tidelog.views.stores.store import COPY, Place, generation_of
from views.test_reading import MARKS, NOW_MS, Log, apply, fetched, micro_batches
from views.writing import REVENUE, Rows

ALL = 99
STEPS_MAX = 1_000


@dataclass
class Sharer:
    reading: Reading | None = None
    stretch: Stretch | None = None  # that it has read, and not written yet


@dataclass
class Shared:
    """A store, its topic, and who reads of it what."""

    log: Log
    sharers: list[Sharer]
    place: Place = field(default_factory=lambda: Place(1, {}, None))
    rows: dict[str, int] = field(default_factory=dict)
    kept: int = 0  # the first mark that compaction has left
    free: Ends = field(default_factory=dict)
    pace: Pace = Pace.ASIDE

    def assign(self, sharer: Sharer, share: list[TopicPartition]) -> None:
        about = (REVENUE, share, self.place, dict.fromkeys(self.log.partitions, 0))
        sharer.reading = Reading(*about, marks_from=(MARKS, 0), pace=self.pace, free=self.free, now_ms=lambda: NOW_MS)
        sharer.stretch = None

    def fetch(self, sharer: Sharer, count: int) -> None:
        for at, position in (sharer.reading.wanted() if sharer.reading else {}).items():
            come = [one for one in self._batches(at) if one[0] >= position][:count]
            if come and sharer.reading is not None:
                data = b"".join(data for _, _, data in come)
                sharer.reading.note(fetched(at, position, come[-1][1], data))

    def _batches(self, at: TopicPartition) -> list[tuple[int, int, bytes]]:
        if at != MARKS:
            return self.log._batches[at]
        told = [
            bytes(encode_batch([(*encode_mark(mark), (), 0)], base_offset=n)) for n, mark in enumerate(self.log.marks)
        ]
        return [(number, number + 1, data) for number, data in enumerate(told)][self.kept :]

    def take(self, sharer: Sharer) -> None:
        if sharer.reading is not None and sharer.stretch is None:
            sharer.stretch = sharer.reading.next()

    def write(self, sharer: Sharer) -> bool:
        """Whether it was refused."""
        reading, stretch = sharer.reading, sharer.stretch
        if reading is None or stretch is None:
            return False
        sharer.stretch = None
        try:
            place = moved(self.place, stretch, reading.before, view="revenue")
        except AnotherApplier:
            self.assign(sharer, list(reading.partitions))
            return True
        for change in stretch.changes:
            assert self.place.ends.get(change.at, 0) <= change.offset < place.ends[change.at], "once"
        apply(self.rows, stretch)
        before, self.place = self.place, place
        reading.applied(stretch)
        self.check(before)
        return False

    def check(self, before: Place) -> None:
        assert all(end >= before.ends.get(at, 0) for at, end in self.place.ends.items())
        mark = self.place.mark
        if mark is not None:
            assert reached(mark.ends, self.place.ends)
            assert before.mark is None or mark.batch_id >= before.mark.batch_id


@proves("eo.20", "eo.17", "F3")
@given(micro_batches, st.integers(1, 4), st.integers(1, 3), st.data())
def test_whoever_has_which_partition_and_writes_when_every_row_is_applied_once_and_the_mark_is_all_of_theirs(
    batches: list[Rows], partitions: int, count: int, data: st.DataObject
) -> None:
    shared = Shared(Log(batches, partitions), [Sharer() for _ in range(count)])
    work_at_random(shared, data)
    settle(shared)
    last = shared.log.marks[-1]
    assert shared.rows == shared.log.oracle.now
    assert (dict(shared.place.ends), shared.place.mark) == (last.ends, last)


def work_at_random(shared: Shared, data: st.DataObject) -> None:
    share = st.lists(st.sampled_from(shared.log.partitions), unique=True, min_size=1)
    count = len(shared.sharers)
    for sharer in shared.sharers:
        shared.assign(sharer, sorted(data.draw(share)))
    steps = st.tuples(st.sampled_from(["read", "read", "write", "write", "assign"]), st.integers(0, count - 1))
    for what, index in data.draw(st.lists(steps, min_size=6, max_size=40)):
        sharer = shared.sharers[index]
        if what == "assign":  # nobody is asked: two may have one partition, and one of them does not know it yet
            shared.assign(sharer, sorted(data.draw(share)))
        elif what == "read":
            shared.fetch(sharer, data.draw(st.integers(1, 3)))
            shared.take(sharer)
        else:
            shared.write(sharer)


def settle(shared: Shared) -> None:
    """Each has its share, and all that was written is read."""
    for index, sharer in enumerate(shared.sharers):
        share = shared.log.partitions[index :: len(shared.sharers)]
        shared.write(sharer)
        shared.assign(sharer, share) if share else setattr(sharer, "reading", None)
    for _ in range(STEPS_MAX):
        for sharer in shared.sharers:
            shared.fetch(sharer, ALL)
            shared.take(sharer)
        if not any(sharer.stretch for sharer in shared.sharers):
            return
        for sharer in shared.sharers:
            shared.write(sharer)
    raise AssertionError("it does not come to rest")


# What is shown --------------------------------------------------------------------------------------------------------

FIRST, SECOND = TopicPartition("revenue.v2", 0), TopicPartition("revenue.v2", 1)
ends = st.fixed_dictionaries({FIRST: st.integers(0, 4), SECOND: st.integers(0, 4)})


@proves("eo.20", "eo.24")
@given(ends, ends, ends)
def test_all_is_due_when_each_share_is(live: dict, stored: dict, aim: dict) -> None:  # type: ignore[type-arg]
    first = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 2)
    view = lifecycle.switch(lifecycle.begin(first, REVENUE, "f", 2), 2, live)
    shares = [is_due_of(view.generations[1], {at: stored[at]}, aim) for at in (FIRST, SECOND)]
    assert is_due(view.generations[1], stored, aim) is all(shares)
    assert not is_due_of(building(), stored, aim)


def building() -> catalog.Generation:
    first = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 2)
    return lifecycle.begin(first, REVENUE, "f", 2).generations[1]


@proves("eo.20", "eo.24")
@given(st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), st.integers(0, 2))
def test_what_is_shown_is_never_older_than_what_was(number: int, copy: int, shown: int, shown_copy: int) -> None:
    asked, there = number + copy * COPY, shown + shown_copy * COPY
    assert is_to_show(asked, None)
    assert is_to_show(asked, there) is ((number, copy) > (shown, shown_copy))
    assert not (is_to_show(asked, there) and generation_of(asked) < generation_of(there))


@proves("eo.20", "eo.19")
def test_who_has_read_an_older_record_of_the_view_forgets_nothing_that_is_newer() -> None:
    first = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 1)
    assert to_forget(first, [1, 2, COPY + 2], shown=1) == [], "others build generation 2"
    assert to_forget(lifecycle.begin(first, REVENUE, "f", 1), [1, 2, COPY + 2], shown=1) == [2]
