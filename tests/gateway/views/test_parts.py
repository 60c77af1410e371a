"""Parts over HTTP: 503 for one that has a fault, 404 for one that nobody knows, and 200 for all others."""

from __future__ import annotations

import time

import tidelog
from gateway.serving import Client
from gateway.views.shop import wait_for
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.status import Reporter


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
        assert "query shop.revenue has failed" in client("GET", "/parts/query/shop.revenue").message
        silent = {"state": "running", "at_ms": int(time.time() * 1000) - 60_000}
        Reporter(cluster, "applier", "revenue.sqlite").tell(silent, at_once=True)
        wait_for(lambda: client("GET", "/parts/applier/revenue.sqlite").status == 503)
    assert "applier revenue.sqlite has not reported for 6" in client("GET", "/parts/applier/revenue.sqlite").message
    found = {(one["kind"], one["name"]): one["runs"] for one in client("GET", "/parts").json}
    assert found["query", "shop.revenue"] is False and found["applier", "revenue.sqlite"] is False


@proves("F3", "http")
def test_a_part_that_was_told_to_rest_does_not_run_and_has_no_fault(client: Client, broker: tidelog.Broker) -> None:
    told: dict[str, dict[str, object]] = {
        "now.runs": {"error": None},
        "now.retries": {"error": "the store is away"},
        "now.ended": {"error": None, "ended": True},
        "now.paused": {"error": None, "state": "paused"},
        "now.failed": {"error": "no view", "state": "failed", "ended": True},
    }
    with Cluster(broker.bootstrap) as cluster:
        for name, figures in told.items():
            Reporter(cluster, "applier", name).tell(figures, at_once=True)
    wait_for(lambda: client("GET", "/parts/applier/now.failed").status != 404)
    found = {one["name"]: (one["state"], one["runs"], one["fault"]) for one in client("GET", "/parts").json}
    assert {name: found[name] for name in told} == {
        "now.runs": ("running", True, None),
        "now.retries": ("retrying", False, "retries after a fault: the store is away"),
        "now.ended": ("stopped", False, None),
        "now.paused": ("paused", False, None),
        "now.failed": ("failed", False, "has failed: no view"),
    }
    assert [client("GET", f"/parts/applier/{name}").status for name in told] == [200, 503, 200, 200, 503]
