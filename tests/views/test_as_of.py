"""A view as of a time: what it was after the newest mark then, recomputed from its topic; or refused, and why."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control.catalog import Editor, Generation, View
from tidelog.control.marks import Mark, Sources, end_of_marks, read_mark
from tidelog.errors import CursorExpired, UsageError
from tidelog.views import lifecycle
from tidelog.views.as_of import (
    GenerationHistory,
    _history,
    as_of,
    earliest_ms,
    live_since,
    live_then,
    mark_at,
    needed,
    said,
)
from tidelog.views.changes import encode
from views.writing import REVENUE, Oracle, Pipeline, declare_view, revenues, row_of

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_800_000_000_000
AT = TopicPartition("revenue.v1", 0)


@proves("E5")
def test_a_view_at_any_time_is_what_it_was_after_the_newest_mark_then(cluster: Cluster) -> None:
    pipeline, oracle = Pipeline(cluster, declare_view(cluster, "revenue", partitions=3).generations[0]), Oracle()
    start = int(time.time() * 1000) - 2 * HOUR_MS
    were = [(start - 1000, dict[str, int]())]
    for number in range(12):
        rows = {f"p{number % 4}": None if number % 3 == 2 else number, "all": number}
        oracle.note(rows, pipeline.batch(rows, time_ms=start + number * 1000))
        were.append((start + number * 1000, dict(oracle.now)))
    for at_ms, expected in were:
        assert revenues(as_of(cluster, "revenue", at_ms).rows) == expected
        assert revenues(as_of(cluster, "revenue", at_ms + 999).rows) == expected
    found = as_of(cluster, "revenue", start + 5_500)
    assert found.mark is not None and found.mark.batch_id == 5 and found.generation == 1
    assert [row["product"] for row in found.rows] == sorted(str(row["product"]) for row in found.rows)
    with pytest.raises(UsageError, match="is in the future"):
        as_of(cluster, "revenue", int(time.time() * 1000) + HOUR_MS)


@proves("E5", "eo.15")
def test_a_time_beyond_the_horizon_is_refused_and_the_earliest_one_is_named(cluster: Cluster) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    now = int(time.time() * 1000)
    pipeline.batch({"a": 1}, time_ms=now - 9 * DAY_MS)
    pipeline.batch({"a": 2}, time_ms=now - DAY_MS)
    with pytest.raises(CursorExpired) as refused:
        as_of(cluster, "revenue", now - 8 * DAY_MS, now_ms=now)
    assert refused.value.start == said(now - 7 * DAY_MS) and str(refused.value.start) in str(refused.value)
    assert revenues(as_of(cluster, "revenue", now - 7 * DAY_MS, now_ms=now).rows) == {"a": 1}
    assert revenues(as_of(cluster, "revenue", now, now_ms=now).rows) == {"a": 2}


@proves("E5", "eo.14")
def test_each_time_is_told_by_the_generation_that_was_live_then(cluster: Cluster) -> None:
    now = int(time.time() * 1000)
    old = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    old.batch({"a": 1}, time_ms=now - 5 * HOUR_MS)
    view = declare_view(cluster, "revenue")
    new = Pipeline(cluster, view.generations[1], query_id="r")
    new.batch({"a": 100}, time_ms=now - 3 * HOUR_MS)
    live = new.batch({"b": 200}, time_ms=now - 2 * HOUR_MS)
    editor = Editor(cluster, "revenue")
    switched = lifecycle.switch(view, 2, live.ends)
    editor.write(switched)
    assert revenues(as_of(cluster, "revenue", now - 4 * HOUR_MS).rows) == {"a": 1}
    assert revenues(as_of(cluster, "revenue", now - 2 * HOUR_MS - 1).rows) == {"a": 1}, "it was not live yet"
    assert revenues(as_of(cluster, "revenue", now - 2 * HOUR_MS).rows) == {"a": 100, "b": 200}
    editor.write(lifecycle.forget(switched, 1))
    with pytest.raises(CursorExpired, match=said(now - 2 * HOUR_MS).replace(".", r"\.")):
        as_of(cluster, "revenue", now - 4 * HOUR_MS)


@proves("E5", "eo.18")
def test_a_topic_without_marks_is_told_by_its_records_times(cluster: Cluster) -> None:
    generation = Generation(1, "any", "", "f", 1, REVENUE, {})
    Editor(cluster, "revenue").write(View("revenue", "shop", (), (), (generation,), 1))
    topics.create(cluster, "any", partitions=1)
    now = int(time.time() * 1000)
    with Producer(cluster) as producer:
        for number in range(4):
            key, value = encode(REVENUE, row_of("a", number))
            producer.send("any", value, key=key, timestamp=now - 10_000 + number * 1000)
    assert revenues(as_of(cluster, "revenue", now - 8_500).rows) == {"a": 1}
    assert revenues(as_of(cluster, "revenue", now).rows) == {"a": 3}


@proves("E5", "eo.18", "eo.15")
def test_a_topic_without_marks_has_a_horizon_too(cluster: Cluster) -> None:
    generation = Generation(1, "any", "", "f", 1, REVENUE, {})
    Editor(cluster, "revenue").write(View("revenue", "shop", (), (), (generation,), 1))
    topics.create(cluster, "any", partitions=1)
    now = int(time.time() * 1000)
    with Producer(cluster) as producer:
        for number, at_ms in enumerate((now - 9 * DAY_MS, now - DAY_MS)):
            key, value = encode(REVENUE, row_of("a", number))
            producer.send("any", value, key=key, timestamp=at_ms)
    with pytest.raises(CursorExpired) as refused:
        as_of(cluster, "revenue", now - 8 * DAY_MS, now_ms=now)
    assert refused.value.start == said(now - 7 * DAY_MS)
    assert revenues(as_of(cluster, "revenue", now - 7 * DAY_MS, now_ms=now).rows) == {"a": 0}
    with pytest.raises(CursorExpired):  # all of it is older
        as_of(cluster, "revenue", now - 8 * DAY_MS, now_ms=now + 30 * DAY_MS)
    topics.delete_records(cluster, {TopicPartition("any", 0): 1})
    with pytest.raises(CursorExpired, match="begins at offset 1, what was before is deleted: the past of view revenue"):
        as_of(cluster, "revenue", now, now_ms=now)


# Decisions ------------------------------------------------------------------------------------------------------------


def history(number: int, live: int | None, *times: int) -> GenerationHistory:
    """Marks that end at 1, 2, ... at these times."""
    ends = {} if live == 0 else None if live is None else {AT: live}
    generation = Generation(number, f"revenue.v{number}", "s", "f", 1, REVENUE, ends)
    found = [Mark("s", "q", index, Sources(), {AT: index + 1}, at) for index, at in enumerate(times)]
    return GenerationHistory(generation, found)


@proves("E5")
def test_a_generation_was_live_from_its_mark_that_reached_live() -> None:
    first, second, third = history(1, 0, 10, 20), history(2, 2, 30, 40, 50), history(3, None, 60)
    assert [one.live_since_ms for one in (first, second, third)] == [0, 40, None]
    newest_first = [third, second, first]
    numbers = [one.generation.number for at in (5, 39, 40, 99) if (one := live_then(newest_first, at)) is not None]
    assert numbers == [1, 1, 2, 2]


@proves("E5")
@given(st.lists(st.integers(0, 100), max_size=8).map(sorted), st.integers(-1, 101))
def test_the_newest_mark_at_or_before_a_time_counts(times: list[int], at: int) -> None:
    found = mark_at(history(1, 0, *times), at)
    assert (None if found is None else found.batch_id) == max(
        (index for index, one in enumerate(times) if one <= at), default=None
    )


@proves("E5", "eo.15")
def test_the_past_is_whole_until_something_is_older_than_the_horizon() -> None:
    assert earliest_ms(history(1, 0, NOW_MS - DAY_MS), NOW_MS) == 0
    assert earliest_ms(history(1, 0), NOW_MS) == 0
    assert earliest_ms(history(1, 0)._replace(has_older=True), NOW_MS) == NOW_MS - 7 * DAY_MS
    assert earliest_ms(history(1, 0, NOW_MS - 8 * DAY_MS), NOW_MS) == NOW_MS - 7 * DAY_MS
    assert earliest_ms(history(2, 2, NOW_MS - 9, NOW_MS - 5), NOW_MS) == NOW_MS - 5


@proves("E5")
@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 9), st.integers(-1, 101))
def test_three_marks_say_what_all_of_them_would(times: list[int], live: int, at: int) -> None:
    every = history(2, live, *times)
    few = GenerationHistory(every.generation, needed(every.generation, iter(every.marks), at))
    assert len(few.marks) <= 3
    assert (few.live_since_ms, mark_at(few, at)) == (every.live_since_ms, mark_at(every, at))
    assert earliest_ms(few, NOW_MS) == earliest_ms(every, NOW_MS)


@proves("E5")
def test_marks_of_the_horizon_are_not_held_and_read_no_further_than_needed(cluster: Cluster) -> None:
    view = declare_view(cluster, "revenue")
    pipeline = Pipeline(cluster, view.generations[0])
    for number in range(9):
        last = pipeline.batch({"a": number})
    sink, now = last.sink, int(time.time() * 1000)
    assert read_mark(cluster, sink, end_of_marks(cluster, sink)) == last, "a commit is answered before it can be read"
    assert [one.batch_id for one in _history(cluster, view, now, now).marks] == [0, 8]
    assert as_of(cluster, "revenue", now).mark == last
    rest = iter(history(2, 3, *range(9)).marks)
    assert live_since(history(2, 3).generation, rest) == 2
    assert next(rest).time_ms == 3
