"""Parts over HTTP: 200 for one that runs and reports, 503 for one that does not, 404 for one that nobody knows."""

from __future__ import annotations

import time

import tidelog
from gateway.serving import Client
from gateway.views.shop import wait_for
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.status import Report, Reporter
from tidelog.gateway.views.parts import LATE_S, fault_of


@proves("F3", "http")
def test_a_supervisor_is_told_whether_a_part_runs(client: Client, broker: tidelog.Broker) -> None:
    assert client("GET", "/parts/query/shop.revenue").status == 404
    with Cluster(broker.bootstrap) as cluster:
        reporter = Reporter(cluster, "query", "shop.revenue")
        reporter.tell({"state": "running", "rows": 1}, at_once=True)
        wait_for(lambda: client("GET", "/parts/query/shop.revenue").status == 200)
        got = client("GET", "/parts/query/shop.revenue").json
        assert (got["runs"], got["fault"], got["figures"]["rows"]) == (True, None, 1)
        reporter.tell({"state": "failed"}, at_once=True)
        wait_for(lambda: client("GET", "/parts/query/shop.revenue").status == 503)
        assert "it is failed" in client("GET", "/parts/query/shop.revenue").message
        silent = {"state": "running", "at_ms": int(time.time() * 1000) - 60_000}
        Reporter(cluster, "applier", "revenue.sqlite").tell(silent, at_once=True)
        wait_for(lambda: client("GET", "/parts/applier/revenue.sqlite").status == 503)
    assert "it has not reported for 6" in client("GET", "/parts/applier/revenue.sqlite").message
    found = {(one["kind"], one["name"]): one["runs"] for one in client("GET", "/parts").json}
    assert found["query", "shop.revenue"] is False and found["applier", "revenue.sqlite"] is False


@proves("http")
def test_a_broker_that_has_no_news_is_no_broker_that_is_silent() -> None:
    now = time.time() * 1000
    old = {"at_ms": now - 1000 * LATE_S - 1}
    assert fault_of(Report("broker", "1", old), now) is None
    assert fault_of(Report("query", "a", old), now) is not None
    assert fault_of(Report("query", "a", {"at_ms": now}), now) is None
    assert fault_of(Report("query", "a", {"at_ms": now, "state": "paused"}), now) == "it is paused"


@proves("http")
def test_a_part_that_was_killed_does_not_run_on_for_as_long_as_the_clock_was_set_back() -> None:
    now = time.time() * 1000
    assert fault_of(Report("query", "a", {"at_ms": now + 1000}), now) is None, "clocks differ"
    told = fault_of(Report("query", "a", {"at_ms": now + 3_600_000}), now)
    assert told == "it has not reported since a time that is 3600 s ahead of the clock here"


@proves("F3", "http")
def test_an_applier_that_has_ended_or_waits_does_not_run_though_it_reported_a_moment_ago(
    client: Client, broker: tidelog.Broker
) -> None:
    told: dict[str, dict[str, object]] = {
        "now.runs": {"error": None},
        "now.waits": {"error": "the store is away"},
        "now.ended": {"error": None, "ended": True},
        "now.failed": {"error": "no view", "state": "failed", "ended": True},
    }
    with Cluster(broker.bootstrap) as cluster:
        for name, figures in told.items():
            Reporter(cluster, "applier", name).tell(figures, at_once=True)
    wait_for(lambda: client("GET", "/parts/applier/now.failed").status != 404)
    found = {one["name"]: (one["runs"], one["fault"]) for one in client("GET", "/parts").json}
    assert {name: found[name] for name in told} == {
        "now.runs": (True, None),
        "now.waits": (False, "it is waiting"),
        "now.ended": (False, "it is stopped"),
        "now.failed": (False, "it is failed"),
    }
    assert [client("GET", f"/parts/applier/{name}").status for name in told] == [200, 503, 503, 503]
