"""Feeds: what a change is to a reader, where a reader is, and that who comes back misses and doubles nothing."""

from __future__ import annotations

import random
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from proving import proves
from tidelog.client.admin import configs, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control import catalog
from tidelog.control.catalog import Editor, View
from tidelog.errors import CursorExpired, NotShown, UsageError
from tidelog.schema.declaration import declare
from tidelog.schema.expression.evaluation import predicate
from tidelog.schema.expression.parser import parse
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.changes import CREATE, UPDATE, Change, encode
from tidelog.views.feed_reading import FeedReader, Piece, Switched, find, newest, oldest
from tidelog.views.feeds import CHANGE, ENTER, LEAVE, Cursor, event_of, from_text, to_text
from tries import tries
from views.writing import Pipeline, declare_view

AT = TopicPartition("t", 0)
MANY = 3
PATIENCE_S = 60.0


def told(text: str, before: int | None, after: int | None, op: str = UPDATE) -> str | None:
    def row(a: int | None) -> dict[str, Any] | None:
        return None if a is None else {"a": a}

    return event_of(Change((1,), row(after), row(before), AT, 0, 0, op), predicate(parse(text)))


@proves("D7", "eo.12")
def test_rows_enter_change_and_leave_the_result() -> None:
    assert told("a > 5", 1, 6) == ENTER
    assert told("a > 5", 6, 7) == CHANGE
    assert told("a > 5", 6, 1) == LEAVE
    assert told("a > 5", 6, None) == LEAVE
    assert told("a > 5", 1, 2) is None and told("a > 5", 1, None) is None
    assert told("a > 5", None, 6, CREATE) == ENTER and told("a > 5", None, 1, CREATE) is None
    assert event_of(Change((1,), {"a": 1}, {"a": 0}, AT, 0, 0), None) == CHANGE


@proves("eo.12")
def test_where_nobody_knows_what_was_before_a_row_that_does_not_match_leaves() -> None:
    assert told("a > 5", None, 1) == LEAVE
    assert told("a > 5", None, 6) == CHANGE
    assert told("a > 5", None, None) == LEAVE
    assert told("b is not null", None, 6) == LEAVE, "unknown is no match"


@proves("D7")
def test_a_place_is_behind_another_in_any_partition_or_in_an_older_generation() -> None:
    here = Cursor("revenue", 2, (5, 5))
    assert not here.is_behind(here) and not here.is_behind(Cursor("revenue", 2, (4, 5)))
    assert here.is_behind(Cursor("revenue", 2, (0, 6)))
    assert here.is_behind(Cursor("revenue", 3, (0, 0))) and not here.is_behind(Cursor("revenue", 1, (9, 9, 9)))


@proves("eo.12")
@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 9)), max_size=30), st.booleans())
def test_who_puts_and_takes_away_by_events_has_the_rows_that_match(changes: list[Any], knows_before: bool) -> None:
    where = predicate(parse("a > 5"))
    rows: dict[int, dict[str, Any]] = {}
    copy: dict[int, dict[str, Any]] = {}
    for key, value in changes:
        before, after = rows.get(key), None if value is None else {"a": value}
        if before is None and after is None:
            continue
        op = CREATE if knows_before and before is None else UPDATE
        event = event_of(Change((key,), after, before if knows_before else None, AT, 0, 0, op), where)
        if event in (ENTER, CHANGE) and after is not None:
            assert (key in copy) == (event == CHANGE) or not knows_before
            copy[key] = after
        elif event == LEAVE:
            assert key in copy or not knows_before
            copy.pop(key, None)
        rows[key] = after or {}
        if after is None:
            del rows[key]
    assert copy == {key: row for key, row in rows.items() if row["a"] > 5}


# Cursors --------------------------------------------------------------------------------------------------------------

OFFSETS = st.integers(0, 2**63 - 1)


@proves("eo.23")
@given(st.integers(1, 10**6), st.lists(OFFSETS, min_size=1, max_size=9), OFFSETS, st.data())
def test_a_cursor_is_text_that_is_taken_back_as_it_was_and_in_no_other_form(
    generation: int, offsets: list[int], time_ms: int, data: st.DataObject
) -> None:
    cursor = Cursor("revenue", generation, tuple(offsets), time_ms)
    text = to_text(cursor)
    assert from_text(text, "revenue") == cursor
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    place = data.draw(st.integers(0, len(text) - 1))
    changed = (
        text[:place] + data.draw(st.sampled_from("aZ0-_é ").filter(lambda one: one != text[place])) + text[place + 1 :]
    )
    for wrong in (changed, text[:place], text + "AAAA"):
        try:
            assert from_text(wrong, "revenue") == cursor, "the last character has bits that count for nothing"
        except UsageError:
            continue


def forged(said: bytes) -> str:
    return urlsafe_b64encode(said + crc32(said).to_bytes(4, "big")).decode()


@proves("eo.23", "hostile")
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"1",
        b"null",
        b"[1]",
        b'[1,"revenue",1]',
        b'[1,"revenue",1,[0],0,0]',
        b'[1,"revenue",-1,[0],0]',
        b'[1,"revenue",1,[-1],0]',
        b'[1,"revenue",1,["0"],0]',
        b'[1,"revenue",1,[1.5],0]',
        b'[1,"revenue",1,[true],0]',
        b'[1,"revenue",1,[9223372036854775808],0]',
        b'[1,"revenue",1,0,0]',
        b'[1,"revenue",1,{"0":1},0]',
        b"[1,7,1,[0],0]",
        b'[1,"orders",1,[0],0]',
        b'[2,"revenue",1,[0],0]',
        b"[" * 30_000,
        b"\xff\xfe",
    ],
)
def test_what_looks_like_a_cursor_and_is_none_is_refused(said: bytes) -> None:
    with pytest.raises(UsageError):
        from_text(forged(said), "revenue")


@proves("eo.23", "hostile")
@given(st.text(max_size=50))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        from_text(text, "revenue")


# Reading --------------------------------------------------------------------------------------------------------------


def end_of(pipeline: Pipeline) -> Cursor:
    """Where its last micro-batch ends. What was committed can be read a moment later, so `newest` may be before it."""
    assert pipeline.last is not None
    generation = pipeline.generation
    name = generation.topic.rpartition(".")[0]
    offsets = tuple(pipeline.last.ends[at] for at in pipeline.partitions)
    return Cursor(name, generation.number, offsets, pipeline.last.time_ms)


def seen(cluster: Cluster, name: str, live: int = 1) -> View:
    """The view, once the catalog can be read so far."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = catalog.read_catalog(cluster).get((catalog.VIEW, name))
        if isinstance(found, View) and found.live == live:
            return found
        assert time.monotonic() < deadline


def wait_for(cluster: Cluster, view: View, end: Cursor) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while newest(cluster, view) != end:
        assert time.monotonic() < deadline


def drained(reader: FeedReader, end: Cursor) -> list[tuple[int, int, Any]]:
    """Partition, offset and row of each change up to `end`."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while not (reader.cursor.generation == end.generation and reader.cursor.reaches(end.offsets)):
        assert time.monotonic() < deadline
        step = reader.step()
        if isinstance(step, Piece):
            found += [(one.at.partition, one.offset, one.after and one.after["revenue"]) for one in step.changes]
    return found


@proves("D7", "eo.15")
@tries(6, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each writes topics of its own
@given(seed=st.integers(0, 2**32))
def test_who_is_cut_off_at_random_and_comes_back_misses_and_doubles_nothing(cluster: Cluster, seed: int) -> None:
    """In the middle of a micro-batch too; aborted ones, empty ones and ones of one partition among them."""
    chance = random.Random(seed)
    name = f"cut-{seed}-{time.monotonic_ns()}"
    view = declare_view(cluster, name, partitions=MANY)
    pipeline = Pipeline(cluster, view.generations[0])
    start = newest(cluster, view)
    written = 0
    for number in range(12):
        rows = {f"p{chance.randrange(9)}": chance.choice([None, number]) for _ in range(chance.choice([0, 1, 4]))}
        if chance.random() < 0.2:
            pipeline.owner.begin()
            pipeline.write({"never": 1})
            pipeline.owner.abort()
            pipeline.batch_id -= 1
        pipeline.batch(rows)
        written += len(rows)
    end = end_of(pipeline)
    whole = drained(FeedReader(cluster, view, start), end)
    assert len(whole) == len(set(whole)) == written
    pieces, cursor = [], start
    while not cursor.reaches(end.offsets):
        step = FeedReader(cluster, view, from_text(to_text(cursor), name)).step()
        if step is None:
            continue
        assert isinstance(step, Piece)
        cursor = step.end
        for change in step.changes:
            pieces.append((change.at.partition, change.offset, change.after and change.after["revenue"]))
            if chance.random() < 0.2:
                cursor = _after(step, change)
                break
    assert sorted(pieces) == sorted(whole)
    for index in range(MANY):
        assert [one for one in pieces if one[0] == index] == [one for one in whole if one[0] == index], "in order"


def _after(piece: Piece, last: Change) -> Cursor:
    cursor = piece.start
    for change in piece.changes:
        cursor = cursor.after(change)
        if change is last:
            break
    return cursor


@proves("D7")
def test_nothing_is_told_before_its_micro_batch_is_committed(cluster: Cluster) -> None:
    view = declare_view(cluster, "open", partitions=MANY)
    pipeline = Pipeline(cluster, view.generations[0])
    reader = FeedReader(cluster, view, newest(cluster, view), wait_ms=50)
    pipeline.owner.begin()
    mark = pipeline.write({f"p{number}": number for number in range(9)})
    assert [reader.step() for _ in range(3)] == [None] * 3
    pipeline.owner.commit()
    pipeline.last = mark
    assert len(drained(reader, end_of(pipeline))) == 9


@proves("D7", "eo.15")
def test_who_comes_back_misses_nothing_though_the_clock_was_set_back_while_a_mark_was_written(cluster: Cluster) -> None:
    """The mark says another hour than its record is stamped with, by which it is looked for."""
    view = declare_view(cluster, "set-back")
    pipeline = Pipeline(cluster, view.generations[0])
    pipeline.batch({"tea": 1}, time_ms=int(time.time() * 1000) + 3_600_000)
    place = end_of(pipeline)
    pipeline.batch({"tea": 2})
    wait_for(cluster, view, end_of(pipeline))
    assert [row for *_, row in drained(FeedReader(cluster, view, place), end_of(pipeline))] == [2]


@proves("eo.15")
def test_a_cursor_beyond_the_horizon_is_told_and_one_of_an_idle_view_is_not(cluster: Cluster) -> None:
    horizon_ms = 3_600_000
    view = declare_view(cluster, "old", declare({"product": "string", "revenue": "long"}, ("product",), horizon_ms))
    pipeline = Pipeline(cluster, view.generations[0])
    first = newest(cluster, view)
    now = int(time.time() * 1000)
    pipeline.batch({"tea": 1}, time_ms=now - 3 * horizon_ms)
    old = end_of(pipeline)
    wait_for(cluster, view, old)
    assert FeedReader(cluster, view, old, wait_ms=1).step() is None, "nothing has come since: nothing was missed"
    with pytest.raises(CursorExpired) as expired:
        FeedReader(cluster, view, first).step()
    assert expired.value.start is not None and from_text(expired.value.start, "old") == old
    pipeline.batch({"tea": 2}, time_ms=now - 2 * horizon_ms)
    wait_for(cluster, view, end_of(pipeline))
    with pytest.raises(CursorExpired):
        FeedReader(cluster, view, old).step()
    pipeline.batch({"tea": 3}, time_ms=now - horizon_ms // 2)
    wait_for(cluster, view, end_of(pipeline))
    with pytest.raises(CursorExpired):
        FeedReader(cluster, view, old).step()
    young = old._replace(offsets=(end_of(pipeline).offsets[0] - 1,), time_ms=now - 2 * horizon_ms)
    assert drained(FeedReader(cluster, view, young), end_of(pipeline)) == [(0, young.offsets[0], 3)]
    from_start = FeedReader(cluster, view, oldest(cluster, view), from_start=True)
    assert [row for _, _, row in drained(from_start, end_of(pipeline))] == [1, 2, 3]


@proves("eo.15")
def test_a_cursor_before_the_start_of_the_topic_is_told(cluster: Cluster) -> None:
    view = declare_view(cluster, "cut")
    pipeline = Pipeline(cluster, view.generations[0])
    start = newest(cluster, view)
    for number in range(3):
        pipeline.batch({"tea": number})
    configs.alter(cluster, configs.TOPIC, "cut.v1", set={"cleanup.policy": "compact,delete"})
    topics.delete_records(cluster, {TopicPartition("cut.v1", 0): 3})
    with pytest.raises(CursorExpired):
        FeedReader(cluster, view, start)


@proves("eo.23")
def test_a_cursor_of_another_topic_or_generation_is_refused(cluster: Cluster) -> None:
    view = declare_view(cluster, "other", partitions=2)
    for wrong in (Cursor("other", 1, (0,)), Cursor("other", 1, (9, 0)), Cursor("other", 2, (0, 0))):
        with pytest.raises(UsageError):
            FeedReader(cluster, view, wrong)


@proves("eo.23")
def test_a_switch_is_told_once_and_the_feed_goes_on_where_the_new_generation_counts(cluster: Cluster) -> None:
    view = declare_view(cluster, "built", partitions=1)
    old = Pipeline(cluster, view.generations[0])
    old.batch({"tea": 1})
    start = end_of(old)
    seen(cluster, "built")
    found, position = find(cluster, "built")
    reader = FeedReader(cluster, found, start, catalog_from=position)
    old.batch({"tea": 2})
    assert [row for _, _, row in drained(reader, end_of(old))] == [2]
    view = declare_view(cluster, "built", partitions=2)
    new = Pipeline(cluster, view.generations[1])
    new.batch({"tea": 1, "milk": 1})
    live = new.batch({"tea": 2})
    editor = Editor(cluster, "built")
    editor.write(lifecycle.switch(view, 2, live.ends))
    new.batch({"tea": 3})
    after = _steps(reader, end_of(new))
    late = _steps(FeedReader(cluster, seen(cluster, "built", live=2), start), end_of(new))
    for steps in (after, late):
        switched = [one for one in steps if isinstance(one, Switched)]
        assert [one.end.generation for one in switched] == [2] and len(switched[0].end.offsets) == 2
        changes = [change for one in steps if isinstance(one, Piece) for change in one.changes]
        assert [change.after for change in changes] == [{"product": "tea", "revenue": 3}]


@proves("eo.23")
def test_a_catalog_as_it_was_before_the_switch_leads_nobody_back(cluster: Cluster) -> None:
    declare_view(cluster, "back")
    stale = declare_view(cluster, "back")
    assert stale.live == 1 and [one.number for one in stale.generations] == [1, 2]
    with pytest.raises(NotShown, match="generation 2 of view back is not seen to be live yet; try again"):
        FeedReader(cluster, stale, Cursor("back", 2, (0,)))


def _steps(reader: FeedReader, end: Cursor) -> list[Piece | Switched]:
    found = []
    while reader.cursor.generation != end.generation or not reader.cursor.reaches(end.offsets):
        if (step := reader.step()) is not None:
            found.append(step)
    return found


@proves("D7")
def test_a_view_whose_topics_are_not_there_yet_is_one_to_try_again(cluster: Cluster) -> None:
    editor = Editor(cluster, "begun")
    declared = declare({"a": "long"}, ("a",))
    editor.write(lifecycle.begin(lifecycle.new_view("begun", app="a", inputs=(), stores=()), declared, "f", 1))
    view = seen(cluster, "begun")
    with pytest.raises(NotShown):
        FeedReader(cluster, view, Cursor("begun", 1, (0,)))


@proves("D7", "eo.18", "eo.15")
def test_a_topic_without_marks_is_followed_as_far_as_it_is_committed(cluster: Cluster) -> None:
    hour_ms = 3_600_000
    stock = declare({"product": "string", "revenue": "long"}, ("product",), hour_ms)
    topics.create(cluster, "stock", partitions=2)
    Editor(cluster, "stock").write(lifecycle.of_topic("stock", "stock", stock, 2))
    view = seen(cluster, "stock")
    start = newest(cluster, view)
    reader = FeedReader(cluster, view, start, wait_ms=50)
    assert reader.step() is None
    with Producer(cluster) as producer:
        for number in range(5):
            key, value = encode(stock, {"product": f"p{number}", "revenue": number})
            producer.send("stock", value, key=key, partition=number % 2)
    told: list[int] = []
    while len(told) < 5:
        step = reader.step()
        if isinstance(step, Piece):
            told += [change.after["revenue"] for change in step.changes if change.after is not None]
    assert sorted(told) == list(range(5))
    assert reader.cursor == newest(cluster, view)._replace(time_ms=reader.cursor.time_ms)
    old = int(time.time() * 1000) - 2 * hour_ms
    with Producer(cluster) as producer:
        producer.send("stock", value, key=key, partition=0, timestamp=old)
    late = newest(cluster, view)
    assert FeedReader(cluster, view, late, wait_ms=1).step() is None
    topics.create(cluster, "aged", partitions=1)
    Editor(cluster, "aged").write(lifecycle.of_topic("aged", "aged", stock, 1))
    aged = seen(cluster, "aged")
    begin = newest(cluster, aged)
    with Producer(cluster) as producer:
        producer.send("aged", value, key=key, timestamp=old)
    with pytest.raises(CursorExpired):
        FeedReader(cluster, aged, begin)


@proves("D7", "eo.26")
def test_a_view_that_grows_by_a_column_is_followed_with_it(cluster: Cluster) -> None:
    view = declare_view(cluster, "grows")
    seen(cluster, "grows")
    pipeline = Pipeline(cluster, view.generations[0])
    found, position = find(cluster, "grows")
    reader = FeedReader(cluster, found, newest(cluster, found), catalog_from=position, wait_ms=50)
    wider = declare({"product": "string", "revenue": "long", "orders": "long"}, ("product",))
    Editor(cluster, "grows").write(lifecycle.go_on(view, wider, "f2"))
    while _columns(reader) != 3:
        assert reader.step() is None
    pipeline.owner.begin()
    pipeline.last = pipeline.write_encoded([encode(wider, {"product": "tea", "revenue": 1, "orders": 2})])
    pipeline.owner.commit()
    told = [
        change.after for step in _steps(reader, end_of(pipeline)) if isinstance(step, Piece) for change in step.changes
    ]
    assert told == [{"product": "tea", "revenue": 1, "orders": 2}]


def _columns(reader: FeedReader) -> int:
    assert reader.view.current is not None
    return len(reader.view.current.declared.columns)


COMPACTED_AT_ONCE = {"internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}


@proves("eo.15")
@pytest.mark.slow
def test_what_compaction_has_taken_is_never_passed_over_in_silence(tmp_path: Path) -> None:
    """From any place that was ever told, once compaction has run: all that came after it, or `CursorExpired`."""
    quick = {"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "200"}
    horizon_ms = 2_000
    declared = declare({"product": "string", "revenue": "long"}, ("product",), horizon_ms)
    with TestBroker(tmp_path / "data", settings=quick) as broker, Cluster(broker.bootstrap) as cluster:
        view = declare_view(cluster, "taken", declared)
        for topic in ("taken.v1", "__tidelog.marks.taken.v1"):
            configs.alter(cluster, configs.TOPIC, topic, set=COMPACTED_AT_ONCE)
        pipeline = Pipeline(cluster, view.generations[0])
        places, began = [newest(cluster, view)], time.monotonic()
        while time.monotonic() - began < 2 * horizon_ms / 1000 or _records(cluster, view) > len(places) // 2:
            pipeline.batch({f"p{len(places) % 3}": len(places)})
            places.append(end_of(pipeline))
            time.sleep(0.02)
            assert time.monotonic() - began < PATIENCE_S, "nothing was compacted"
        end, expired = end_of(pipeline), 0
        numbered = list(enumerate(places))
        for index, place in (*reversed(numbered[-10:]), *numbered[:-10:8]):
            try:
                rows = [row for _, _, row in drained(FeedReader(cluster, view, place, wait_ms=50), end)]
            except CursorExpired:
                expired += 1
                continue
            assert rows == list(range(index + 1, len(places))), place
        assert expired > 0


def _records(cluster: Cluster, view: View) -> int:
    """How many rows the topic still has."""
    consumer = Consumer(cluster, read_committed=True, max_wait_ms=0)
    consumer.assign({TopicPartition(view.generations[0].topic, 0): 0})
    found = 0
    while fetched := consumer.fetch():
        found += sum(1 for one in fetched for _ in one.rows())
    return found
