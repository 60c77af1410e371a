"""Histories of event stores over HTTP."""

from __future__ import annotations

import tidelog
from gateway.serving import Client
from proving import proves
from sourcing.seats import Cancel, Reserve, seats
from tidelog.sourcing import EventStore


@proves("E5", "http")
def test_a_history_is_read_up_to_a_version_or_a_time_and_page_by_page(client: Client, broker: tidelog.Broker) -> None:
    assert client("GET", "/stores/seats/entities/A1").status == 404
    with EventStore("seats", seats(), bootstrap=broker.bootstrap, partitions=1) as store:
        store.send("A1", Reserve("anna"), id="c1", who="desk", metadata={"ip": "::1"})
        store.send("A1", Cancel("anna"), id="c2", causation="c1.0")
        store.send("A1", Reserve("bob"), id="c3")
    got = client("GET", "/stores/seats/entities/A1").json
    assert (got["entity"], got["version"], got["closed"], len(got["events"])) == ("A1", 3, False, 3)
    first, second, _ = got["events"]
    assert (first["type"], first["fields"], first["who"]) == ("Reserved", {"who": "anna"}, "desk")
    assert (first["command"], first["metadata"], second["causation"]) == ("c1", {"ip": "::1"}, "c1.0")
    assert client("GET", "/stores/seats/entities/A1?version=1").json["events"] == [first]
    assert client("GET", "/stores/seats/entities/A1?at=2001-01-01").json["version"] == 0
    page = client("GET", "/stores/seats/entities/A1?limit=2").json
    assert (len(page["events"]), page["next"]) == (2, 2)
    rest = client("GET", "/stores/seats/entities/A1?limit=2&after=2").json
    assert ([one["version"] for one in rest["events"]], "next" in rest) == ([3], False)
    for wrong in ("version=-1", "version=9", "at=noon", "version=1&at=2001-01-01", "limit=100000", "other=1"):
        assert client("GET", f"/stores/seats/entities/A1?{wrong}").status == 400, wrong
    assert client("GET", "/stores/seats/entities/nobody").status == 404
    assert client("GET", "/stores/se%2Fats/entities/A1").status in (400, 404)
