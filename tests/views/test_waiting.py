"""Waiting: from what was written to the view that has it, hop by hop, and however the row ended on its way."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest

from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control import marks
from tidelog.control.catalog import Editor, Generation
from tidelog.control.derived import DIFFERENCE, Derived, TopicGeneration
from tidelog.control.marks import NOTHING_HELD, Mark, Sources
from tidelog.control.status import Report, Reporter
from tidelog.errors import HeldBack, NotYetApplied, UsageError
from tidelog.testing.broker import TestBroker
from tidelog.views import lifecycle
from tidelog.views.changes import Stretch
from tidelog.views.not_yet import held_back, sink_behind, store_behind
from tidelog.views.stores.opening import open_store
from tidelog.views.stores.store import Place
from tidelog.views.waiting import After, Hop, has_read, hops, is_at_least, parse_after, upstream, wait
from views.applying import applying, shown, until_applied
from views.writing import ORDERS, REVENUE, Pipeline, declare_view

LONG_S, SHORT_S = 60.0, 0.3
SWITCHED_S = 3.0  # within which a store that is asked twice has switched


def derived(cluster: Cluster, name: str, inputs: tuple[str, ...]) -> Pipeline:
    """A derived topic, and the sink that writes it."""
    Editor(cluster, name).write(Derived(name, "shop", name, f"shop.{name}", inputs))
    generation = Generation(0, name, f"shop.{name}", "", 1, REVENUE)
    topics.create(cluster, name, partitions=1)
    marks.ensure_topic(cluster, generation.sink)
    return Pipeline(cluster, generation)


@proves("eo.22", "D8")
def test_what_was_written_is_there_after_waiting(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    view = declare_view(cluster, "revenue", partitions=2)
    pipeline = Pipeline(cluster, view.generations[0])
    store = open_store(url, "revenue")

    def write_later() -> None:
        time.sleep(0.3)
        for number in range(5):
            pipeline.batch({"a": number, "b": number})

    with applying(tidelog_broker.bootstrap, url), Cluster(tidelog_broker.bootstrap) as mine:
        writer = Thread(target=write_later)
        writer.start()
        place = wait(mine, "revenue", After({ORDERS: 5}), LONG_S, store=store)
        assert place.mark is not None and place.mark.sources.offsets[ORDERS] == 5
        assert shown(url).rows == {"a": 4, "b": 4}  # type: ignore[union-attr]
        writer.join()
        again = wait(mine, "revenue", parse_after("orders:0:2"), SHORT_S, store=store)
        assert again.place == place.place, "it is there already"
    store.close()


@proves("eo.22", "D8")
def test_a_row_that_was_dropped_on_its_way_counts_as_applied(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        pipeline.batch({"a": 1}, sources=Sources({ORDERS: 1}))
        pipeline.batch({}, sources=Sources({ORDERS: 9}))
        wait(cluster, "revenue", After({ORDERS: 9}), LONG_S, store=store)
        with pytest.raises(NotYetApplied, match=r"sink revenue.v1 has not read orders:0:9"):
            wait(cluster, "revenue", After({ORDERS: 10}), SHORT_S, store=store)
    store.close()


@proves("eo.22", "D8")
def test_waiting_goes_through_topics_on_the_way(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    big = derived(cluster, "big-orders", ("orders",))
    view = declare_view(cluster, "revenue", inputs=("big-orders",))
    pipeline, store = Pipeline(cluster, view.generations[0]), open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        first = big.batch({"x": 1}, sources=Sources({ORDERS: 3}))
        second = big.batch({"y": 1}, sources=Sources({ORDERS: 7}))
        until_applied(url, pipeline.batch({"x": 1}, sources=Sources(first.ends)).ends)
        with pytest.raises(NotYetApplied, match=r"sink revenue.v1 has not read big-orders:0"):
            wait(cluster, "revenue", After({ORDERS: 7}), SHORT_S, store=store)
        last = pipeline.batch({"y": 1}, sources=Sources(second.ends))
        wait(cluster, "revenue", After({ORDERS: 7}), LONG_S, store=store)
        assert until_applied(url, last.ends).rows == {"x": 1, "y": 1}
    store.close()


@proves("eo.22", "D8")
def test_of_several_places_each_is_waited_for_also_if_one_lies_on_the_way_from_another(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    big = derived(cluster, "big-orders", ("orders",))
    view = declare_view(cluster, "revenue", inputs=("big-orders",))
    pipeline = Pipeline(cluster, view.generations[0])
    at, own = TopicPartition("big-orders", 0), TopicPartition(view.generations[0].topic, 0)
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        read = big.batch({"a": 1}, sources=Sources({ORDERS: 1})).ends
        applied = pipeline.batch({"a": 1}, sources=Sources({at: read[at]})).ends
        wait(cluster, "revenue", After({ORDERS: 1, at: 1, own: 1}), LONG_S, store=store)
        with pytest.raises(NotYetApplied, match=r"sink shop.big-orders has not read orders:0:1"):
            wait(cluster, "revenue", After({ORDERS: 2, at: 1}), SHORT_S, store=store)
        with pytest.raises(NotYetApplied, match=r"revenue"):
            wait(cluster, "revenue", After({ORDERS: 1, own: applied[own] + 1}), SHORT_S, store=store)
    store.close()


@proves("eo.22", "D8")
def test_waiting_goes_through_a_view_that_is_read_by_another(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    """The catalog names it as the app does, without a generation; the records are in its live one."""
    people = Pipeline(cluster, declare_view(cluster, "people").generations[0])
    view = declare_view(cluster, "revenue", inputs=("people",))
    pipeline, store = Pipeline(cluster, view.generations[0]), open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        first = people.batch({"x": 1}, sources=Sources({ORDERS: 3}))
        second = people.batch({"y": 1}, sources=Sources({ORDERS: 7}))
        pipeline.batch({"x": 1}, sources=Sources(first.ends))
        with pytest.raises(NotYetApplied, match=r"sink revenue.v1 has not read people.v1:0"):
            wait(cluster, "revenue", After({ORDERS: 7}), SHORT_S, store=store)
        last = pipeline.batch({"y": 1}, sources=Sources(second.ends))
        wait(cluster, "revenue", After({ORDERS: 7}), LONG_S, store=store)
        assert until_applied(url, last.ends).rows == {"x": 1, "y": 1}
    store.close()


@proves("eo.22")
def test_a_store_that_is_behind_is_waited_for_and_one_without_an_applier_is_told(cluster: Cluster, url: str) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    pipeline.batch({"a": 1}, sources=Sources({ORDERS: 1}))
    store = open_store(url, "revenue")
    with pytest.raises(
        NotYetApplied, match=r"did not have orders:0:0 in time: .* no applier of it has reported: is one"
    ):
        wait(cluster, "revenue", After({ORDERS: 1}), SHORT_S, store=store)
    store.close()


@proves("eo.22")
def test_a_topic_that_the_view_is_not_made_of_is_refused(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    mark = pipeline.batch({"a": 1})
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, mark.ends)
        with pytest.raises(UsageError, match="does not come from payments; it is made of orders"):
            wait(cluster, "revenue", parse_after("payments:0:1"), SHORT_S, store=store)
        own = parse_after("revenue.v1:0:0")
        assert wait(cluster, "revenue", own, LONG_S, store=store).ends == mark.ends, "its own topic's offsets"
    store.close()


@proves("eo.22", "eo.24")
def test_during_a_switch_what_is_shown_is_waited_for(tidelog_broker: TestBroker, cluster: Cluster, url: str) -> None:
    old = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    until = After({ORDERS: 1})
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        old.batch({"a": 1}, sources=Sources({ORDERS: 1}))
        assert wait(cluster, "revenue", until, LONG_S, store=store).generation == 1
        view = declare_view(cluster, "revenue")
        new = Pipeline(cluster, view.generations[1], query_id="r")
        live = new.batch({"a": 2}, sources=Sources({ORDERS: 1}))
        assert wait(cluster, "revenue", until, LONG_S, store=store).generation == 1
        Editor(cluster, "revenue").write(lifecycle.switch(view, 2, live.ends))
        until_applied(url, live.ends, generation=2)
        assert wait(cluster, "revenue", until, LONG_S, store=store).generation == 2
    store.close()


@proves("eo.22", "eo.24")
def test_a_wait_that_is_over_names_the_generation_that_is_shown_by_then(
    cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store switches while it is waited for, and what it shows then is behind as well."""
    view = declare_view(cluster, "revenue")
    view = declare_view(cluster, "revenue")
    first, last = dict[int, Mark](), dict[int, Mark]()
    for generation in view.generations:
        pipeline = Pipeline(cluster, generation)
        first[generation.number] = pipeline.batch({"a": 1}, sources=Sources({ORDERS: 1}))
        last[generation.number] = pipeline.batch({"a": 2}, sources=Sources({ORDERS: 2}))
    store, other = open_store(url, "revenue"), open_store(url, "revenue")

    def show(number: int) -> None:
        other.prepare(number, REVENUE)
        other.apply(number, Stretch([], first[number].ends, first[number]), before={}, show=True)

    def place(number: int) -> Place | None:
        found = look(number)
        if number == 1:
            show(2)
        return found

    show(1)
    look = store.place
    monkeypatch.setattr(store, "place", place)
    with pytest.raises(NotYetApplied) as over:
        wait(cluster, "revenue", After({ORDERS: 2}), SWITCHED_S, store=store)
    at = TopicPartition("revenue.v2", 0)
    assert f"the store is at {at} to offset {first[2].ends[at]} of {last[2].ends[at]};" in str(over.value)
    assert "revenue.v1" not in str(over.value)
    store.close()
    other.close()


def generation_of_net(number: int, topic: str, **more: Any) -> TopicGeneration:
    return TopicGeneration(number, topic, "shop.net" if number == 1 else f"shop.net.v{number}", "f", live={}, **more)


def pipeline_of(cluster: Cluster, one: TopicGeneration, written: str) -> Pipeline:
    """`written`: the topic that the generation's sink writes to for now."""
    topics.ensure(cluster, written, partitions=1)
    marks.ensure_topic(cluster, one.sink)
    return Pipeline(cluster, Generation(one.number, written, one.sink, "", 1, REVENUE))


def declare_reader(cluster: Cluster, reads: int) -> Pipeline:
    view = declare_view(cluster, "revenue", inputs=("net",))
    read = replace(view, generations=(replace(view.generations[0], reads={"net": reads}),))
    Editor(cluster, "revenue").write(read)
    return Pipeline(cluster, read.generations[0])


@proves("eo.22", "dt.4", "D8")
def test_a_view_that_was_rebuilt_with_the_topic_it_reads_does_not_wait_for_the_old_generation_of_that(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    """The old topic stays for seven days, and nobody writes it any more."""
    old, new = generation_of_net(1, "net"), generation_of_net(2, "net.v2")
    Editor(cluster, "net").write(Derived("net", "shop", "net.v2", new.sink, ("orders",), 0, (old, new), 2, 2))
    pipeline_of(cluster, old, "net").batch({"x": 1}, sources=Sources({ORDERS: 3}))
    written = pipeline_of(cluster, new, "net.v2").batch({"x": 1}, sources=Sources({ORDERS: 7}))
    pipeline, store = declare_reader(cluster, reads=2), open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        pipeline.batch({"x": 1}, sources=Sources(written.ends))
        place = wait(cluster, "revenue", After({ORDERS: 7}), LONG_S, store=store)
        assert place.mark is not None and place.mark.sources.offsets == written.ends
    store.close()


@proves("eo.22", "dt.4")
def test_a_view_that_still_reads_the_old_generation_of_a_topic_has_not_what_the_new_one_has(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    old, new = generation_of_net(1, "net"), generation_of_net(2, "net.v2")
    Editor(cluster, "net").write(Derived("net", "shop", "net.v2", new.sink, ("orders",), 0, (old, new), 2, 2))
    read = pipeline_of(cluster, old, "net").batch({"x": 1}, sources=Sources({ORDERS: 3}))
    pipeline_of(cluster, new, "net.v2").batch({"x": 1}, sources=Sources({ORDERS: 7}))
    pipeline, store = declare_reader(cluster, reads=1), open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        pipeline.batch({"x": 1}, sources=Sources(read.ends))
        wait(cluster, "revenue", After({ORDERS: 3}), LONG_S, store=store)
        with pytest.raises(NotYetApplied, match=r"sink shop.net has not read orders:0:6"):
            wait(cluster, "revenue", After({ORDERS: 7}), SHORT_S, store=store)
    store.close()


@proves("eo.22", "dt.8")
def test_while_a_topic_is_put_in_place_a_wait_does_not_take_what_is_aside_for_what_is_there(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    """The new sink has read the record, and its rows are not in the topic that the view reads."""
    old = generation_of_net(1, "net", keyed=True)
    new = generation_of_net(2, "net", keyed=True, in_place=DIFFERENCE, aside="net.v2")
    put = replace(new, aside="")
    entry = Derived("net", "shop", "net", new.sink, ("orders",), 0, (old, new), 2, 2)
    Editor(cluster, "net").write(entry)
    before = pipeline_of(cluster, old, "net").batch({"x": 1}, sources=Sources({ORDERS: 3}))
    pipeline_of(cluster, new, "net.v2").batch({"x": 1}, sources=Sources({ORDERS: 7}))
    pipeline, store = declare_reader(cluster, reads=1), open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, pipeline.batch({"x": 1}, sources=Sources(before.ends)).ends)
        with pytest.raises(NotYetApplied, match=r"sink shop.net.v2 .* being put into net"):
            wait(cluster, "revenue", After({ORDERS: 7}), SHORT_S, store=store)
        Editor(cluster, "net").write(replace(entry, generations=(old, put)))
        there = pipeline_of(cluster, put, "net").batch({"x": 2}, sources=Sources({ORDERS: 7}))
        pipeline.batch({"x": 2}, sources=Sources(there.ends))
        wait(cluster, "revenue", After({ORDERS: 7}), LONG_S, store=store)
    store.close()


# Decisions ------------------------------------------------------------------------------------------------------------


@proves("eo.22")
def test_places_to_wait_for_are_written_as_producers_are_told_them() -> None:
    found = parse_after("orders:0:41, orders:1:3,orders:0:7")
    assert found == After({ORDERS: 42, TopicPartition("orders", 1): 4})
    assert str(found) == "orders:0:41, orders:1:3"
    for wrong in (
        "",
        "orders",
        "orders:0",
        "orders:x:1",
        "orders:0:-1",
        ":0:1",
        "orders:0:٣",
        "orders:0:" + "9" * 5000,
    ):
        with pytest.raises(UsageError, match="TOPIC:PARTITION:OFFSET"):
            parse_after(wrong)


@proves("eo.22", "eo.10")
def test_positions_are_compared_as_their_kind_is() -> None:
    assert is_at_least("0/16B3748", "0/16B3748") and is_at_least("1/0", "0/FFFFFFFF") and is_at_least("0/A0", "0/9F")
    assert not is_at_least("0/9F", "0/A0")
    assert is_at_least("binlog.000010:4", "binlog.000009:900") and not is_at_least(
        "binlog.000010:4", "binlog.000010:40"
    )
    mark = Mark("s", "q", 1, Sources({ORDERS: 5}, {"shop": "0/A0"}), {}, 0)
    assert has_read(mark, After({ORDERS: 5}, {"shop": "0/9F"}))
    assert not has_read(mark, After({ORDERS: 6}))
    assert not has_read(mark, After({}, {"other": "0/1"}))
    assert After({ORDERS: 1}, {"shop": "0/1"}).of(["shop"]) == After({}, {"shop": "0/1"})


@proves("eo.22")
def test_all_ways_from_a_topic_to_a_view_are_found() -> None:
    def hop(topic: str, *inputs: str) -> tuple[str, Hop]:
        return topic, Hop(f"sink.{topic}", topic, inputs)

    known = dict(
        [hop("v", "a", "b", "other"), hop("a", "orders"), hop("b", "c"), hop("c", "orders", "a"), hop("x", "orders")]
    )
    assert upstream(known, "v", {"orders"}) == ["a", "c", "b"]
    assert upstream(known, "a", {"orders"}) == []
    assert upstream(known, "v", {"b"}) == []
    assert upstream(known, "v", {"orders", "c", "b"}) == ["a", "c", "b"], "also where one is made of another"
    assert upstream(known, "v", {"payments"}) == []
    assert upstream({"r": Hop("s", "r", ("r", "orders"))}, "r", {"orders"}) == [], "one that reads itself"


@proves("eo.22")
def test_a_rebuilt_reader_of_a_rebuilt_topic_is_not_asked_for_what_the_old_one_has() -> None:
    """Its old generation read the old topic, and the new one reads the new topic alone: neither waits for the other."""
    first = TopicGeneration(1, "big", "shop.big", live={})
    entry = Derived("big", "shop", "big.v2", "shop.big.v2", ("orders",), 0, (first,), 2, 2)
    entry = replace(entry, generations=(first, TopicGeneration(2, "big.v2", "shop.big.v2", live={})))
    view = lifecycle.begin(lifecycle.new_view("sums", app="shop", inputs=["big"], stores=[]), REVENUE, "f1", 1)
    view = lifecycle.begin(view, REVENUE, "f2", 1, reads={"big": 2})
    known = hops({("topic", "big"): entry, ("view", "sums"): view})
    assert (known["sums.v1"].inputs, known["sums.v2"].inputs) == (("big",), ("big.v2",))
    assert upstream(known, "sums.v2", {"orders"}) == ["big.v2"]


# What is said when the time is over -----------------------------------------------------------------------------------

HOP = Hop("revenue.v1", "revenue.v1", ("orders",))
NOW_MS = 1_767_225_600_000.0


def query(**figures: object) -> Report:
    told = {"output": {"topic": "revenue.v1"}, "state": "running", "at_ms": NOW_MS, **figures}
    return Report("query", "shop.revenue", told)


def mark(offset: int) -> Mark:
    return Mark("revenue.v1", "q", 1, Sources({ORDERS: offset}), {}, 0)


@proves("eo.22")
@pytest.mark.parametrize(
    ("last", "reports", "told"),
    [
        (
            None,
            [],
            r"it has read nothing yet; no query that writes it has reported: is its pipeline running\? `tidelog",
        ),
        (mark(0), [query()], r"come to nothing of orders:0; its query shop.revenue runs: wait longer$"),
        (
            mark(5),
            [query(lag={"records": 7})],
            r"come to orders:0:4; its query shop.revenue runs, 7 records behind: wait",
        ),
        (mark(5), [query(state="paused")], r"its query shop.revenue is paused$"),
        (mark(5), [query(state="failed", error={"message": "no column"})], r"shop.revenue has failed: no column$"),
        (mark(5), [query(at_ms=NOW_MS - 95_000)], r"has not reported for 95 s$"),
        (
            mark(5),
            [query(lateness_ms=10_000, watermark_ms=1_767_225_590_000)],
            r"runs, at watermark 2025-12-31T23:59:50.000\+00:00: a record that is more than 5 s ahead of other"
            r" partitions in event time waits for them; wait longer, or leave event_time out$",
        ),
        (mark(5), [query(lateness_ms=0)], r"runs, without a watermark yet: a record that is more than 0 s ahead"),
    ],
)
def test_a_wait_that_is_over_says_which_sink_and_how_far_and_how_its_query_is(
    last: Mark | None, reports: list[Report], told: str
) -> None:
    said = sink_behind(HOP, After({ORDERS: 10}), last, reports, NOW_MS)
    assert said.startswith("sink revenue.v1 has not read orders:0:9 in time: it has ") and re.search(told, said), said
    assert "applier" not in said


@proves("eo.22")
@pytest.mark.parametrize(
    ("at", "figures", "told"),
    [
        (
            {},
            None,
            r"the store is at revenue.v1\[0\] to offset 0 of 9; no applier of it has reported: is one running\?",
        ),
        ({"end": 4}, {}, r"revenue.v1\[0\] to offset 4 of 9; revenue.x runs: wait longer$"),
        ({"end": 4}, {"ended": True}, r"revenue.x is stopped: start it again$"),
        ({"end": 4}, {"error": "disk is full"}, r"revenue.x retries after a fault: disk is full: wait longer$"),
    ],
)
def test_a_wait_that_is_over_says_how_far_the_store_is_and_how_its_applier_is(
    at: dict[str, int], figures: dict[str, object] | None, told: str
) -> None:
    place = TopicPartition("revenue.v1", 0)
    reports = (
        [] if figures is None else [Report("applier", "revenue.x", {"view": "revenue", "at_ms": NOW_MS, **figures})]
    )
    ends = {place: at["end"]} if at else {}
    said = store_behind("revenue", After({ORDERS: 10}), {place: 9}, ends, reports, NOW_MS)
    assert said.startswith("view revenue did not have orders:0:9 in time: the view's topic has it") and re.search(
        told, said
    )


@proves("eo.22", "E3")
def test_of_a_read_model_it_says_how_that_is_and_not_that_its_topic_has_what_was_asked_for() -> None:
    place = TopicPartition("seats.events", 0)
    reports = [Report("read model", "held", {"view": "held", "at_ms": NOW_MS})]
    said = store_behind("held", After({place: 10}), {place: 10}, {place: 4}, reports, NOW_MS)
    told = f"the store is at {place} to offset 4 of 10; held runs: wait longer"
    assert said == f"view held did not have {place.topic}:0:9 in time: {told}"


@proves("eo.22")
def test_an_input_that_never_had_a_row_is_not_said_to_be_in_1970() -> None:
    said = held_back(HOP, Mark("revenue.v1", "q", 0, Sources({}), {}, 0, watermark_ms=0), NOW_MS, {"orders": 0})
    assert (
        said.startswith("revenue.v1 is not complete up to any time, and not up to ")
        and "held by orders (no row yet)," in said
    )
    assert "1970" not in said


@proves("eo.22")
def test_of_a_store_that_is_behind_only_the_partitions_that_lack_something_are_named() -> None:
    first, second = (TopicPartition("revenue.v1", number) for number in (0, 1))
    after = After({ORDERS: 10})
    said = store_behind("revenue", after, {first: 9, second: 4}, {first: 9, second: 3}, [], NOW_MS)
    assert f"the store is at {second} to offset 3 of 4;" in said and str(first) not in said
    said = store_behind("revenue", after, {first: 9}, {first: 9}, [], NOW_MS)
    assert "the store shows nothing yet;" in said


@proves("eo.22", "P3")
def test_a_wait_for_a_query_that_runs_does_not_ask_for_an_applier(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue").generations[0])
    written = pipeline.batch({"a": 1}, sources=Sources({ORDERS: 1}))
    store = open_store(url, "revenue")
    reporter = Reporter(cluster, "query", "shop.revenue")
    topic = pipeline.generation.topic
    reporter.tell({"state": "running", "output": {"topic": topic}, "lateness_ms": 60_000, "watermark_ms": None})
    with applying(tidelog_broker.bootstrap, url):
        until_applied(url, written.ends)
    with pytest.raises(NotYetApplied) as over:
        wait(cluster, "revenue", After({ORDERS: 5}), SHORT_S, store=store)
    assert "it has come to orders:0:0; its query shop.revenue runs" in str(over.value)
    assert "ahead of other partitions" in str(over.value) and "applier" not in str(over.value)
    store.close()


# Waiting for a time ---------------------------------------------------------------------------------------------------

NOON, MINUTE = 1_767_614_400_000, 60_000  # 2026-01-05T12:00Z


@proves("eo.22", "D8", "P3")
def test_a_wait_for_a_time_is_over_when_every_hop_has_a_mark_at_or_above_it(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    big = derived(cluster, "big-orders", ("orders",))
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue", inputs=("big-orders",)).generations[0])
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        first = big.batch({"x": 1}, sources=Sources({ORDERS: 3}), watermark_ms=NOON + MINUTE)
        pipeline.batch({"x": 1}, sources=Sources(first.ends), watermark_ms=NOON)
        found = wait(cluster, "revenue", None, LONG_S, store=store, event_time=NOON)
        assert (found.watermark_ms, found.held) == (NOON, {})
        with pytest.raises(NotYetApplied, match=r"revenue.v1 was not complete up to 2026-01-05T12:01:00.000Z in time"):
            wait(cluster, "revenue", None, SHORT_S, store=store, event_time=NOON + MINUTE)
        second = big.batch({"y": 1}, sources=Sources({ORDERS: 7}), watermark_ms=NOON + 2 * MINUTE)
        pipeline.batch({}, sources=Sources(first.ends), watermark_ms=NOON + 2 * MINUTE)
        with pytest.raises(NotYetApplied, match=r"revenue.v1 was not complete"):
            wait(cluster, "revenue", None, SHORT_S, store=store, event_time=NOON + 2 * MINUTE)
        last = pipeline.batch({"y": 1}, sources=Sources(second.ends), watermark_ms=NOON + 2 * MINUTE)
        at = datetime(2026, 1, 5, 12, 2, tzinfo=UTC)
        found = wait(cluster, "revenue", None, LONG_S, store=store, event_time=at)
        assert found.ends == last.ends, "what the first hop put out by then is applied"
    store.close()


@proves("eo.22", "D8")
def test_a_wait_for_a_time_says_at_once_which_silent_input_holds_it(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    """For as long as the input has something that was not read, it is waited for."""
    topics.create(cluster, "payments", partitions=1)
    with Producer(cluster) as producer:
        producer.send("payments", b"{}")
    view = declare_view(cluster, "revenue", inputs=("orders", "payments"))
    pipeline, store = Pipeline(cluster, view.generations[0]), open_store(url, "revenue")
    at = TopicPartition("payments", 0)
    ends = {"orders": NOON + 9 * MINUTE, "payments": NOON}
    with applying(tidelog_broker.bootstrap, url):
        pipeline.batch({"x": 1}, sources=Sources({ORDERS: 3}), watermark_ms=NOON, watermarks=ends)
        wait(cluster, "revenue", After({ORDERS: 3}), LONG_S, store=store)
        with pytest.raises(NotYetApplied) as late:
            wait(cluster, "revenue", None, SHORT_S, store=store, event_time=NOON + MINUTE)
        assert type(late.value) is NotYetApplied, "there is a record that was not read"
        pipeline.batch({}, sources=Sources({ORDERS: 3, at: 1}), watermark_ms=NOON, watermarks=ends)
        began = time.monotonic()
        with pytest.raises(
            HeldBack, match=r"held by payments \(at 2026-01-05T12:00:00.000Z\), an input that is silent"
        ):
            wait(cluster, "revenue", None, LONG_S, store=store, event_time=NOON + MINUTE)
        assert time.monotonic() - began < LONG_S, "not when the time was over"
        wait(cluster, "revenue", None, LONG_S, store=store, event_time=NOON)
    store.close()


@proves("eo.22", "D8")
def test_what_holds_nothing_back_is_not_waited_for_by_time(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    big = derived(cluster, "big-orders", ("orders",))
    pipeline = Pipeline(cluster, declare_view(cluster, "revenue", inputs=("big-orders",)).generations[0])
    store = open_store(url, "revenue")
    with applying(tidelog_broker.bootstrap, url):
        first = big.batch({"x": 1}, sources=Sources({ORDERS: 3}), watermark_ms=NOTHING_HELD)
        pipeline.batch({"x": 1}, sources=Sources(first.ends), watermark_ms=NOTHING_HELD)
        with pytest.raises(UsageError, match=r"nothing on the way to revenue.v1 waits for a watermark"):
            wait(cluster, "revenue", None, LONG_S, store=store, event_time=NOON)
        until_applied(url, pipeline.batch({"y": 1}, sources=Sources(first.ends), watermark_ms=NOON).ends)
        assert wait(cluster, "revenue", None, LONG_S, store=store, event_time=NOON).watermark_ms == NOON
        until_applied(url, pipeline.batch({"z": 1}, sources=Sources(first.ends)).ends)
        with pytest.raises(NotYetApplied, match=r"its last mark tells no watermark, as those of older versions do"):
            wait(cluster, "revenue", None, SHORT_S, store=store, event_time=NOON + 1)
    store.close()


@proves("eo.22", "D8")
def test_without_a_place_what_is_in_the_inputs_now_is_waited_for(
    tidelog_broker: TestBroker, cluster: Cluster, url: str
) -> None:
    topics.create(cluster, "orders", partitions=1)
    topics.create(cluster, "empty", partitions=1)
    view = declare_view(cluster, "revenue", inputs=("orders", "empty"))
    pipeline, store = Pipeline(cluster, view.generations[0]), open_store(url, "revenue")
    counts = {"operators": {"enrich": {"in": 9, "held": 2}, "tumbling": {"in": 9, "late": 1}}}
    with applying(tidelog_broker.bootstrap, url):
        pipeline.batch({}, sources=Sources({ORDERS: 0}))  # the first one of a query comes also where there is nothing
        wait(cluster, "revenue", None, LONG_S, store=store)
        with Producer(cluster) as producer:
            producer.send("orders", b"{}")
        with pytest.raises(NotYetApplied, match=r"sink revenue.v1 has not read .*orders:0:0"):
            wait(cluster, "revenue", None, SHORT_S, store=store)
        pipeline.batch({"a": 1}, sources=Sources({ORDERS: 1}), watermark_ms=NOON, counts=counts)
        found = wait(cluster, "revenue", None, LONG_S, store=store)
        assert (found.watermark_ms, found.held) == (NOON, {"enrich": 2}), "it is read, and two rows are not shown"
    store.close()
