"""A running query that joins a captured table in which nothing changes, beside one that always does: it goes on by the
capture's heartbeats."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from proving import proves
from tidelog.capture.running import Capture
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.control.captures import sink_of
from tidelog.control.marks import read_mark
from tidelog.operators import event_time
from tidelog.testing.broker import TestBroker

PATIENCE_S = 120.0
TABLE = "shop.main.customers"


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    made.execute("CREATE TABLE visits (id INTEGER PRIMARY KEY, n INTEGER)")
    ended = Event()
    visits = Thread(target=visited, args=(tmp_path / "shop.db", ended))
    visits.start()
    yield made
    ended.set()
    visits.join()
    made.close()


def visited(path: Path, ended: Event) -> None:
    """The capture never finds that nothing has come."""
    writer = sqlite3.connect(path, isolation_level=None, timeout=30)
    while not ended.wait(0.2):
        writer.execute("INSERT OR REPLACE INTO visits VALUES (1, random())")
    writer.close()


def timed(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    rows = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    read = rows.options(**{"startingOffsets": "earliest", "kafka.isolation.level": "read_committed", **options}).load()
    return read.transform(event_time("timestamp", "0 seconds", "1 second"))


@proves("D1", "P7", "cdc.5")
@pytest.mark.full
def test_a_join_on_a_quiet_captured_table_goes_on_as_far_as_its_capture_has_told_all(
    spark: SparkSession, tidelog_broker: TestBroker, database: sqlite3.Connection, tmp_path: Path
) -> None:
    bootstrap = tidelog_broker.bootstrap
    database.execute("INSERT INTO customers VALUES (1, 'ann')")

    def capturing() -> Capture:
        made: Capture = tidelog.capture(
            f"sqlite:///{tmp_path}/shop.db", prefix="shop", bootstrap=bootstrap, heartbeat_s=0.2
        )
        return made

    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, "clicks", partitions=1)
        capturing().catch_up()

        def click(name: str) -> int:
            now_ms = int(time.time() * 1000)
            producer.send("clicks", name.encode(), key=b'{"id":9}', timestamp=now_ms)
            producer.flush()
            return now_ms

        def complete_ms() -> int:
            found = read_mark(cluster, sink_of("shop"))
            return 0 if found is None else found.complete_ms or 0

        clicks = timed(spark, bootstrap, "clicks").selectExpr("key AS who", "value AS click", "timestamp AS at")
        changes = timed(spark, bootstrap, TABLE, ticksUpTo=sink_of("shop"))
        changes = changes.selectExpr("key", "value AS change", "timestamp AS changed")
        near = (F.col("who") == F.col("key")) & F.expr("changed BETWEEN at - INTERVAL 1 SECOND AND at")
        joined = clicks.join(changes, near, "leftOuter").selectExpr("CAST(click AS STRING)", "change")
        out: list[tuple[str, Any]] = []
        query = (
            joined.writeStream.foreachBatch(lambda rows, _: out.extend((one[0], one[1]) for one in rows.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            with capturing():
                until(complete_ms)
                click("first")
                until(lambda: ("first", None) in out)  # nobody changed: the join knows, since the capture said so
            told = complete_ms()
            later = click("second")
            assert later > told
            seen = len(query.recentProgress)
            until(lambda: len(query.recentProgress) > seen + 3 or len(out) > 1)
            assert out == [("first", None)], "a capture that is stopped may have changes to tell"
            with capturing():
                until(lambda: ("second", None) in out)
        finally:
            query.stop()
    assert out == [("first", None), ("second", None)]
