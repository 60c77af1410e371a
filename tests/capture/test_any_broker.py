"""The same capture on Tidelog and on Apache Kafka."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tidelog
from capture.captured import envelopes, folded, rows_of
from contract import Broker
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.control.captures import read_captures


@proves("D2", "D3", "T10")
@pytest.mark.timeout(300)
def test_a_capture_runs_on_any_broker(broker: Broker, topic: str, database: sqlite3.Connection, path: Path) -> None:
    database.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, n INT); INSERT INTO orders VALUES (1, 1), (2, 2);"
    )

    def captured() -> None:
        tidelog.capture(
            f"sqlite:///{path}", prefix=topic, bootstrap=broker.bootstrap, transactions=True, heartbeat_s=1.0
        ).catch_up()

    captured()
    database.executescript("UPDATE orders SET n = 3 WHERE id = 1; DELETE FROM orders WHERE id = 2;")
    captured()
    told = envelopes(broker.bootstrap, f"{topic}.main.orders")
    assert [one["op"] for one in told] == ["r", "r", "u", "d"]
    assert folded(told, ["id"]) == rows_of(database, "orders", ["id", "n"], ["id"])
    with Cluster(broker.bootstrap) as cluster:
        assert read_captures(cluster)[topic].progress is not None
