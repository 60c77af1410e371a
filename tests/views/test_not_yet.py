"""What a wait that was in vain says, where it is the query that is ill. Most of it: test_waiting.py."""

from __future__ import annotations

from proving import proves
from tidelog.client.metadata import TopicPartition
from tidelog.control.status import Report
from tidelog.views.not_yet import store_behind
from tidelog.views.waiting import After

NOW_MS, ORDERS = 1_767_225_600_000.0, TopicPartition("orders", 0)


@proves("eo.22", "P3")
def test_of_a_store_that_shows_nothing_the_query_is_named_where_that_has_failed() -> None:
    place, after = TopicPartition("revenue.v1", 0), After({ORDERS: 10})
    output = {"kind": "view", "name": "revenue", "topic": "revenue.v1"}
    query = Report("query", "shop.revenue", {"output": output, "at_ms": NOW_MS, "state": "failed", "error": "no topic"})
    applier = Report("applier", "revenue.x", {"view": "revenue", "at_ms": NOW_MS})
    said = store_behind("revenue", after, {place: 9}, {place: 9}, [query, applier], NOW_MS)
    assert said.endswith("the store shows nothing yet; its query shop.revenue has failed: no topic")
    runs = query._replace(figures={**query.figures, "state": "running", "error": None})
    said = store_behind("revenue", after, {place: 9}, {place: 9}, [runs, applier], NOW_MS)
    assert said.endswith("the store shows nothing yet; revenue.x runs: wait longer")
