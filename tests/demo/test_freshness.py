"""How fresh views are: what is counted, and from when on."""

from __future__ import annotations

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.demo.checking import QUERIES
from tidelog.demo.freshness import Freshness, Produced, percentile
from tidelog.demo.shop import DELIVERIES, ORDERS
from tidelog.demo.watching import Watcher

ONE, TWO, DELIVERED = TopicPartition(ORDERS, 0), TopicPartition(ORDERS, 1), TopicPartition(DELIVERIES, 0)


@proves("demo")
def test_a_record_is_visible_when_the_mark_is_beyond_its_offset() -> None:
    found = Freshness([ORDERS])
    for one in (Produced(ONE, 4, 10.0), Produced(ONE, 5, 10.5), Produced(TWO, 9, 11.0), Produced(DELIVERED, 0, 11.0)):
        found.produced(one)
    found.seen({ONE: 5}, 12.0)
    assert (list(found.seconds), found.waiting) == ([2.0], 2)
    found.seen({ONE: 6, TWO: 10}, 13.0)
    assert (list(found.seconds), found.waiting) == ([2.0, 2.5, 2.0], 0)


@proves("demo")
def test_percentiles_are_figures_that_were_measured() -> None:
    values = [float(one) for one in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) is None


@proves("demo")
def test_views_are_live_when_all_are_shown_and_have_what_came_until_then() -> None:
    watcher = Watcher("sqlite:///nowhere.db")
    watcher.produced(Produced(ONE, 99, 1.0))
    watcher.look({"revenue": {ONE: 100}, "minutes": {ONE: 100}, "stock": None}, 2.0)
    assert not watcher.live.is_set()
    watcher.look({"revenue": {ONE: 100}, "minutes": {ONE: 100}, "stock": {ONE: 50}}, 3.0)
    assert (watcher.live.is_set(), watcher.lag) == (False, {"revenue": 0, "minutes": 0, "stock": 50})
    watcher.look({key: {ONE: 100} for key in QUERIES}, 4.0)
    assert watcher.live.is_set()
    assert not watcher.freshness["stock"].seconds, "what came while it started is not counted"
    watcher.produced(Produced(ONE, 100, 5.0))
    watcher.look({key: {ONE: 101} for key in QUERIES}, 5.5)
    assert {view: list(one.seconds) for view, one in watcher.freshness.items()} == {key: [0.5] for key in QUERIES}
