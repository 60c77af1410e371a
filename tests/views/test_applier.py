"""Appliers: whole micro-batches and nothing else are seen, builds are aside, a switch is one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from threading import Thread

import pytest

from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.control import catalog, marks
from tidelog.control.catalog import CATALOG, Editor, Generation
from tidelog.control.marks import Mark, Sources
from tidelog.errors import AnotherApplier, Disconnected, PeerError, UsageError
from tidelog.schema.declaration import Column, Declaration, declare
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle, reading
from tidelog.views.applier import Applier
from tidelog.views.changes import Outgrown, encode
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.sqlite import SqliteStore
from tidelog.views.stores.store import COPY, Ask
from views.applying import Watched, applying, shown, stepping, until, until_applied
from views.writing import ORDERS, REVENUE, Oracle, Pipeline, declare_view, make_topics, row_of

DAY_MS = 24 * 3600 * 1000


def begun(cluster: Cluster, partitions: int = 1) -> tuple[Pipeline, Oracle]:
    view = declare_view(cluster, "revenue", partitions=partitions)
    return Pipeline(cluster, view.generations[0]), Oracle()


def written(pipeline: Pipeline, oracle: Oracle, rows: dict[str, int | None]) -> Mark:
    mark = pipeline.batch(rows)
    oracle.note(rows, mark)
    return mark


# Whole micro-batches --------------------------------------------------------------------------------------------------


@proves("eo.16", "D7", "F2")
def test_a_reader_beside_the_applier_sees_whole_micro_batches_and_nothing_else(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, oracle = begun(cluster, partitions=4)
    oracle.after[tuple((at, 0) for at in pipeline.partitions)] = {}
    seen, ended = [], False

    def look() -> None:
        while not ended:
            seen.append(shown(url))

    with applying(tidelog_broker.bootstrap, url):
        reader = Thread(target=look)
        reader.start()
        for number in range(25):
            rows = {f"{number % 7}-{item}": None if number % 3 == 2 else number for item in range(30)}
            last = written(pipeline, oracle, rows)
        final = until_applied(url, last.ends)
        ended = True
        reader.join(TIMEOUT_S)
    assert final.rows == oracle.now
    looks = [one for one in seen if one is not None]
    assert len({tuple(sorted(one.ends.items())) for one in looks}) > 3, "it was looked at while it changed"
    assert [one for one in looks if one.rows != oracle.at(one.ends)] == []


@proves("eo.16")
def test_a_micro_batch_is_seen_when_its_last_partition_can_be_read(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of somebody else holds one partition back, as a marker does that is late. All else of the second
    micro-batch has been read, and steps have been made since, when it is looked at.
    """
    watched = Watched(monkeypatch)
    pipeline, oracle = begun(cluster, partitions=4)
    first = written(pipeline, oracle, {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1})
    held = next(at for at, end in first.ends.items() if end)
    with Transactions(cluster, "somebody") as other, applying(tidelog_broker.bootstrap, url):
        until_applied(url, first.ends)
        other.begin()
        key, value = encode(REVENUE, row_of("never", 0))
        other.producer.send(held.topic, value, key=key, partition=held.partition)
        other.producer.flush()
        second = written(pipeline, oracle, {"a": 2, "b": 2, "c": 2, "d": 2, "e": 2})
        others = {at: end for at, end in second.ends.items() if at != held}
        watched.until_read(others)
        assert shown(url).rows == oracle.at(first.ends)  # type: ignore[union-attr]
        other.abort()
        assert until_applied(url, second.ends).rows == oracle.now


@proves("eo.16")
def test_rows_in_one_partition_of_four_and_in_none(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    pipeline, oracle = begun(cluster, partitions=4)
    with applying(tidelog_broker.bootstrap, url):
        mark = written(pipeline, oracle, {"only": 1})
        assert sorted(mark.ends.values()) == [0, 0, 0, 1]
        assert until_applied(url, mark.ends).rows == {"only": 1}
        empty = written(pipeline, oracle, {})
        assert empty.ends == mark.ends and empty.sources != mark.sources
        store = open_store(url, "revenue")
        until(lambda: store.place(1).mark == empty)  # type: ignore[union-attr]
        store.close()
        assert until_applied(url, written(pipeline, oracle, {"only": None}).ends).rows == {}


@proves("eo.16")
def test_aborted_micro_batches_are_never_seen(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    pipeline, oracle = begun(cluster, partitions=2)
    with applying(tidelog_broker.bootstrap, url):
        written(pipeline, oracle, {"a": 1, "b": 1, "c": 1})
        pipeline.owner.begin()
        pipeline.write({"a": 666, "b": 666, "x": 666})
        pipeline.owner.abort()
        last = written(pipeline, oracle, {"b": 2})
        assert until_applied(url, last.ends).rows == oracle.now == {"a": 1, "b": 2, "c": 1}


@proves("eo.16")
def test_who_is_behind_takes_several_micro_batches_at_once(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, oracle = begun(cluster)
    written(pipeline, oracle, {"a": 0})
    with stepping(tidelog_broker.bootstrap, url) as applier:
        while (now := shown(url)) is None or now.rows != oracle.now:
            applier.step()
        for number in range(40):
            last = written(pipeline, oracle, {"a": number, f"p{number}": number})
        before = applier.figures()["transactions"]
        while shown(url).ends != last.ends:  # type: ignore[union-attr]
            applier.step()
        assert applier.figures()["transactions"] - before < 40
    assert shown(url).rows == oracle.now  # type: ignore[union-attr]


@proves("eo.18")
def test_a_topic_of_any_producer_is_applied_without_marks(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    editor = Editor(cluster, "revenue")
    made = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 2)
    generation = Generation(1, "any", "", "f", 2, REVENUE, {})
    editor.write(catalog.View("revenue", "shop", (), (), (generation,), made.live))
    topics.create(cluster, "any", partitions=2)
    with applying(tidelog_broker.bootstrap, url), Producer(cluster) as producer:
        until(lambda: shown(url) is not None)
        for number in range(10):
            key, value = encode(REVENUE, row_of(f"p{number}", number))
            producer.send("any", value, key=key)
        producer.flush()
        until(lambda: shown(url).rows == {f"p{number}": number for number in range(10)})  # type: ignore[union-attr]
        ends = shown(url).ends  # type: ignore[union-attr]
    assert sum(ends.values()) == 10, "its own offsets are its place"


# One applier ----------------------------------------------------------------------------------------------------------


@proves("eo.17")
def test_an_applier_that_finds_another_at_work_stops_and_changes_nothing(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, oracle = begun(cluster)
    first = written(pipeline, oracle, {"a": 1})
    bootstrap = tidelog_broker.bootstrap
    with stepping(bootstrap, url) as old, stepping(bootstrap, url) as new:
        while shown(url) is None:
            old.step()
        new.step()
        last = written(pipeline, oracle, {"a": 2})
        while shown(url).ends == first.ends:  # type: ignore[union-attr]
            new.step()
        with pytest.raises(AnotherApplier, match="another one is at work; stop one of the two"):
            while True:
                old.step()
    assert shown(url) == (oracle.now, last.ends, 1)


@proves("eo.11")
def test_an_applier_reports_its_offsets_as_a_group(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    pipeline, oracle = begun(cluster, partitions=2)
    last = written(pipeline, oracle, {"a": 1, "b": 1, "c": 2})
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, last.ends)
    committed = groups.committed(cluster, "tidelog.revenue.s")
    assert {at: one.offset for at, one in committed.items()} == last.ends


@proves("eo.16", "F2")
def test_two_stores_are_equal_at_equal_offsets(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = f"sqlite:///{tmp_path_factory.mktemp('other')}/views.db"
    pipeline, oracle = begun(cluster, partitions=3)
    with applying(tidelog_broker.bootstrap, url):
        for number in range(20):
            last = written(pipeline, oracle, {f"p{number % 6}": None if number % 4 == 3 else number, "all": number})
        until_applied(url, last.ends)
    with applying(tidelog_broker.bootstrap, other):
        until_applied(other, last.ends)
    assert shown(url) == shown(other) == (oracle.now, last.ends, 1)


# Building aside, switching --------------------------------------------------------------------------------------------


@proves("eo.19")
def test_who_starts_from_nothing_shows_nothing_before_the_mark_that_was_newest_when_it_began(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, oracle = begun(cluster)
    for number in range(30):
        last = written(pipeline, oracle, {f"p{number}": number, "filling": number})
    monkeypatch.setattr(reading, "HELD_BYTES", 1)
    real = reading.Inbox.note

    def note(self: reading.Inbox, fetched: object) -> None:
        assert shown(url) is None, "nothing before it is all there"
        real(self, fetched)  # type: ignore[arg-type]

    monkeypatch.setattr(reading.Inbox, "note", note)
    with stepping(tidelog_broker.bootstrap, url) as applier:
        assert shown(url) is None
        while shown(url) is None:
            applier.step()
    assert shown(url) == (oracle.now, last.ends, 1)


@proves("eo.19")
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_view_is_shown_with_its_first_micro_batch_and_empty_where_that_had_no_rows(
    cluster: Cluster, url: str, shared: bool
) -> None:
    """Before it nobody has computed anything: no rows would be a wrong answer."""
    pipeline, _ = begun(cluster, partitions=2)
    store = open_store(url, "revenue")
    applier = Applier(cluster, "revenue", store, store_name="s", max_wait_ms=50, shared=shared)
    for _ in range(20 if shared else 3):  # those that share join first
        applier.step()
    assert store.shown() is None and list(store.generations()) == [1], "it is prepared, and not shown"
    pipeline.batch({}, sources=Sources({ORDERS: 0}))
    until(lambda: applier.step() or store.shown() == 1)
    assert shown(url).rows == {}  # type: ignore[union-attr]
    store.close()


@proves("eo.19")
def test_an_applier_waits_for_topics_that_are_not_made_yet(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    editor = Editor(cluster, "revenue")
    view = lifecycle.begin(lifecycle.new_view("revenue", app="shop", inputs=[], stores=[]), REVENUE, "f", 1)
    editor.write(view)
    with applying(tidelog_broker.bootstrap, url) as running:
        time.sleep(0.3)
        make_topics(cluster, view.generations[0])
        mark = Pipeline(cluster, view.generations[0]).batch({"a": 1})
        assert until_applied(url, mark.ends).rows == {"a": 1}
        assert running.said == []


@proves("eo.15", "eo.19")
def test_a_store_that_was_left_behind_is_built_anew_beside_what_it_shows(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, _ = begun(cluster)
    old = int(time.time() * 1000) - 9 * DAY_MS
    first = pipeline.batch({"a": 1, "gone": 1}, time_ms=old)
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, first.ends)
    pipeline.batch({"gone": None}, time_ms=old + DAY_MS)
    # As compaction leaves it: neither the delete nor its tombstone is there any more.
    topic = pipeline.generation.topic
    configs.alter(cluster, configs.TOPIC, topic, set={"cleanup.policy": "compact,delete"})
    topics.delete_records(cluster, pipeline.last.ends)  # type: ignore[union-attr]
    last = pipeline.batch({"a": 2})
    with applying(tidelog_broker.bootstrap, url) as running:
        final = until_applied(url, last.ends, generation=COPY + 1)
        assert final.rows == {"a": 2}
        until(lambda: set(_stored(url)) == {COPY + 1})
    assert "built again" in running.said[0]
    with applying(tidelog_broker.bootstrap, url):
        assert until_applied(url, pipeline.batch({"b": 3}).ends).rows == {"a": 2, "b": 3}


@proves("eo.15", "eo.18", "eo.19")
def test_a_store_of_a_topic_without_marks_that_was_left_behind_is_built_anew(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    Editor(cluster, "revenue").write(lifecycle.of_topic("revenue", "any", REVENUE, 1))
    topics.create(cluster, "any", partitions=1)
    old = int(time.time() * 1000) - 9 * DAY_MS

    def write(product: str, at_ms: int) -> None:
        with Producer(cluster) as producer:
            key, value = encode(REVENUE, row_of(product, 1))
            producer.send("any", value, key=key, timestamp=at_ms)

    write("a", old)
    for copies in ([], [], ["b"]):  # one that is quiet for long, and has missed nothing, is gone on with
        for product in copies:
            write(product, old + DAY_MS)
        with applying(tidelog_broker.bootstrap, url) as running:
            until(lambda: (now := shown(url)) is not None and set(now.rows) == {"a", *copies})  # noqa: B023
        assert [one for one in running.said if "built again" in one] == [
            "view revenue: any[0] is applied up to offset 1, and what comes next is older than the horizon of"
            f" {7 * DAY_MS} ms; it is built again"
            for _ in copies
        ]
    assert shown(url).generation == COPY + 1  # type: ignore[union-attr]


def _stored(url: str) -> list[int]:
    store = open_store(url, "revenue")
    try:
        return list(store.generations())
    finally:
        store.close()


@proves("eo.14", "eo.24", "F4")
def test_a_switch_is_seen_in_the_transaction_that_reaches_live(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, oracle = begun(cluster, partitions=2)
    with applying(tidelog_broker.bootstrap, url):
        first = written(pipeline, oracle, {"a": 1, "b": 2})
        until_applied(url, first.ends)
        view = declare_view(cluster, "revenue", partitions=2)
        rebuilt, new = Pipeline(cluster, view.generations[1], query_id="r"), Oracle()
        built = written(rebuilt, new, {"a": 100, "b": 200})
        until(lambda: _ends(url, 2) == built.ends)
        assert shown(url) == (oracle.now, first.ends, 1), "aside"
        live = written(rebuilt, new, {"c": 300})
        until(lambda: _ends(url, 2) == live.ends)
        second = written(pipeline, oracle, {"a": 3})
        assert until_applied(url, second.ends).generation == 1
        _switch(cluster, 2, live)
        assert until_applied(url, live.ends, generation=2).rows == new.now
        last = written(rebuilt, new, {"c": None, "d": 4})
        assert until_applied(url, last.ends, generation=2).rows == new.now
        pipeline.batch({"late": 1})
        assert _stored(url) == [1, 2], "the old one stays until it is forgotten"
        assert _ends(url, 1) == second.ends, "and is left as it was"
        editor = Editor(cluster, "revenue")
        editor.write(lifecycle.forget(editor.view(), 1))  # type: ignore[arg-type]
        until(lambda: _stored(url) == [2])


@proves("eo.24", "E3")
def test_a_record_that_is_no_change_stops_its_generation_and_not_the_one_that_takes_its_place(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline, oracle = begun(cluster)
    first = written(pipeline, oracle, {"a": 1})
    with applying(tidelog_broker.bootstrap, url) as running:
        until_applied(url, first.ends)
        view = declare_view(cluster, "revenue")
        rebuilt, new = Pipeline(cluster, view.generations[1], query_id="r"), Oracle()
        until(lambda: _ends(url, 2) is not None)
        with Producer(cluster) as producer:
            producer.send("revenue.v1", b"somebody else's", key=b"{}", partition=0)
        pipeline.batch({"a": 2})
        live = written(rebuilt, new, {"a": 100})
        until(lambda: _ends(url, 2) == live.ends)
        assert shown(url) == (oracle.now, first.ends, 1), "the old one stays as it was"
        assert "who else writes" in str(running.applier.figures()["error"])  # type: ignore[union-attr]
        _switch(cluster, 2, live)
        assert until_applied(url, live.ends, generation=2).rows == new.now
    with Producer(cluster) as producer:
        producer.send("revenue.v2", b"again", key=b"{}", partition=0)
    rebuilt.batch({"a": 3})
    with stepping(tidelog_broker.bootstrap, url) as applier, pytest.raises(PeerError, match="who else writes"):
        applier.run()


@proves("eo.24", "eo.17")
@pytest.mark.parametrize("fault", [Disconnected("the store is away"), AnotherApplier("it is another's")])
def test_a_fault_of_the_store_is_no_record_that_is_none(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch, fault: PeerError
) -> None:
    """Both generations are followed, and the fault is told to who runs the applier: neither is set aside."""
    pipeline, oracle = begun(cluster)
    first = written(pipeline, oracle, {"a": 1})
    with stepping(tidelog_broker.bootstrap, url) as applier:
        until(lambda: applier.step() is None and _ends(url, 1) == first.ends)
        view = declare_view(cluster, "revenue")
        rebuilt = Pipeline(cluster, view.generations[1], query_id="r")
        until(lambda: applier.step() is None and _ends(url, 2) is not None)
        with monkeypatch.context() as patched:
            patched.setattr(SqliteStore, "apply", refusing(fault))
            written(rebuilt, Oracle(), {"a": 100})
            with pytest.raises(type(fault)):
                until(lambda: applier.step() is None and False)
        assert applier.figures()["error"] is None


def refusing(fault: PeerError) -> Callable[..., None]:
    def apply(*given: object, **named: object) -> None:
        raise fault

    return apply


@proves("eo.24")
def test_a_switch_beyond_what_is_applied_waits_for_live(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    """Somebody's open transaction holds back what `live` is waiting for."""
    pipeline, oracle = begun(cluster)
    first = written(pipeline, oracle, {"a": 1})
    with Transactions(cluster, "somebody") as other, applying(tidelog_broker.bootstrap, url):
        until_applied(url, first.ends)
        view = declare_view(cluster, "revenue")
        rebuilt, new = Pipeline(cluster, view.generations[1], query_id="r"), Oracle()
        built = written(rebuilt, new, {"a": 100})
        until(lambda: _ends(url, 2) == built.ends)
        other.begin()
        key, value = encode(REVENUE, row_of("never", 0))
        other.producer.send("revenue.v2", value, key=key, partition=0)
        other.producer.flush()
        live = written(rebuilt, new, {"b": 200})
        _switch(cluster, 2, live)
        second = written(pipeline, oracle, {"a": 2})
        until_applied(url, second.ends, generation=1)
        time.sleep(0.5)  # the switch lies in the catalog by now
        assert shown(url) == (oracle.now, second.ends, 1)
        other.abort()
        assert until_applied(url, live.ends, generation=2).rows == new.now


@proves("eo.24", "eo.19", "eo.16")
def test_a_switch_never_shows_part_of_a_micro_batch_that_was_built_in_parts(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions are held back one after the other, and the switch comes while some rows are applied, aside."""
    monkeypatch.setattr(reading, "HELD_BYTES", 1)
    pipeline, oracle = begun(cluster, partitions=3)
    first = written(pipeline, oracle, {"a": 1})
    one, two = Transactions(cluster, "one"), Transactions(cluster, "two")
    with one, two, applying(tidelog_broker.bootstrap, url):
        until_applied(url, first.ends)
        view = declare_view(cluster, "revenue", partitions=3)
        rebuilt, new = Pipeline(cluster, view.generations[1], query_id="r"), Oracle()
        built = written(rebuilt, new, {"a": 100})
        until(lambda: _ends(url, 2) == built.ends)
        for holder, index in ((one, 1), (two, 2)):
            holder.begin()
            key, value = encode(REVENUE, row_of("never", 0))
            holder.producer.send("revenue.v2", value, key=key, partition=index)
            holder.producer.flush()
        last = written(rebuilt, new, {f"p{number}": number for number in range(20)})
        until(lambda: _at(url, 0) == last.ends[TopicPartition("revenue.v2", 0)])
        _switch(cluster, 2, built)
        until_applied(url, written(pipeline, oracle, {"a": 2}).ends, generation=1)
        time.sleep(0.3)  # the switch lies in the catalog by now
        one.abort()
        until(lambda: _at(url, 1) == last.ends[TopicPartition("revenue.v2", 1)])
        assert shown(url).generation == 1  # type: ignore[union-attr]
        two.abort()
        assert until_applied(url, last.ends, generation=2).rows == new.now


def _at(url: str, partition: int) -> int | None:
    """How far one partition of generation 2 is."""
    ends = _ends(url, 2)
    assert isinstance(ends, dict)
    return ends.get(TopicPartition("revenue.v2", partition))


def _ends(url: str, generation: int) -> object:
    store = open_store(url, "revenue")
    try:
        place = store.place(generation)
        return None if place is None else place.ends
    finally:
        store.close()


def _switch(cluster: Cluster, number: int, mark: Mark) -> None:
    editor = Editor(cluster, "revenue")
    view = editor.view()
    assert view is not None
    editor.write(lifecycle.switch(view, number, mark.ends))


@proves("eo.14", "eo.26")
def test_a_view_that_grew_by_a_column_is_read_on(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    pipeline, oracle = begun(cluster)
    grown = declare({"product": "string", "revenue": "long", "note": "string"}, ("product",))
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, written(pipeline, oracle, {"a": 1}).ends)
        editor = Editor(cluster, "revenue")
        editor.write(lifecycle.go_on(editor.view(), grown, "f2"))  # type: ignore[arg-type]
        store = open_store(url, "revenue")
        until(lambda: store.generations()[1] == grown)
        pipeline.owner.begin()
        mark = pipeline.write_encoded([encode(grown, {"product": "b", "revenue": 2, "note": "new"})])
        pipeline.owner.commit()
        until_applied(url, mark.ends)
        assert [row["note"] for row in store.read(Ask()).rows] == [None, "new"]
        store.close()


@proves("eo.14")
def test_a_view_that_is_not_in_the_catalog_is_refused_and_the_others_are_named(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    with (
        stepping(tidelog_broker.bootstrap, url) as applier,
        pytest.raises(UsageError, match="no view is declared here yet"),
    ):
        applier.run()
    begun(cluster)
    with (
        stepping(tidelog_broker.bootstrap, url, "revenues") as applier,
        pytest.raises(UsageError, match="are: revenue"),
    ):
        applier.run()


@proves("eo.15")
def test_the_topics_of_a_view_keep_the_horizon(cluster: Cluster) -> None:
    declared = Declaration((Column("k", "long"),), ("k",), horizon_ms=5_000)
    view = declare_view(cluster, "short", declared)
    for topic in (view.generations[0].topic, marks.topic_of(view.generations[0].sink)):
        found = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, topic)}
        assert (found["cleanup.policy"], found["min.compaction.lag.ms"]) == ("compact", "5000")


@proves("eo.14")
def test_the_catalog_says_it_in_these_bytes(cluster: Cluster) -> None:
    view = declare_view(cluster, "revenue", stores=["sqlite:///shop.db"])
    key, value = catalog.encode(view)
    assert json.loads(key) == {"v": 1, "kind": "view", "name": "revenue"}
    assert catalog.decode(key, value) == view
    (found,) = catalog.read_catalog(cluster).values()
    assert isinstance(found, catalog.View) and found.generations == view.generations
    assert TopicPartition("__tidelog.views", 0) == catalog.CATALOG


@proves("eo.14", "eo.24")
def test_an_applier_waits_for_a_catalog_that_an_open_transaction_hides_and_goes_by_no_older_one(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    view = declare_view(cluster, "revenue")
    with Cluster(tidelog_broker.bootstrap) as theirs, Cluster(tidelog_broker.bootstrap, timeout_s=4.0) as mine:
        other = Transactions(theirs, "somebody's")
        other.start()
        key, value = catalog.encode(lifecycle.new_view("other", app="office", inputs=(), stores=()))
        with other.transaction() as producer:
            producer.send(CATALOG.topic, value, key=key, partition=CATALOG.partition)
            producer.flush()
            newer = lifecycle.begin(view, REVENUE, "f2", 1)
            make_topics(cluster, newer.generations[-1])
            Editor(cluster, "revenue").write(newer)
            applier = Applier(mine, "revenue", open_store(url, "revenue"), store_name="views", max_wait_ms=50)
            with pytest.raises(Disconnected, match="a transaction is open there"):
                applier.step()
            assert applier.figures()["generations"] == []
        applier.step()
        assert [one["number"] for one in applier.figures()["generations"]] == [1, 2]


@proves("eo.26", "F2")
def test_rows_with_a_new_column_that_come_before_the_catalog_says_so_lose_nothing(
    tidelog_broker: TestBroker, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the catalog's leader is away for a moment, and the rows' is not."""
    view = declare_view(cluster, "revenue")
    pipeline = Pipeline(cluster, view.generations[0])
    grown = Declaration((*REVENUE.columns, Column("orders", "long")), REVENUE.key)
    with stepping(tidelog_broker.bootstrap, url) as applier:
        pipeline.batch({"tea": 1})
        until(lambda: applier.step() is None and (found := shown(url)) is not None and found.rows == {"tea": 1})
        with monkeypatch.context() as hidden:
            hidden.setattr(Applier, "_note_catalog", lambda self, fetched: None)
            Editor(cluster, "revenue").write(lifecycle.go_on(view, grown, "f2"))
            key, value = encode(grown, {"product": "cup", "revenue": 2, "orders": 3})
            with pipeline.owner.transaction():
                pipeline.write_encoded([(key, value)])
            with pytest.raises(Outgrown):
                until(lambda: applier.step() is None and False)
        applier._away(Outgrown("as `run` does"))
        store = open_store(url, "revenue")
        until(lambda: applier.step() is None and len(store.read(Ask()).rows) == 2)
        assert {row["product"]: row["orders"] for row in store.read(Ask()).rows} == {"cup": 3, "tea": None}
        store.close()
