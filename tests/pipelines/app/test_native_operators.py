"""Outputs of an app whose state is Spark's own: another size on the same checkpoint is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pipelines.app.driven import Driven, committed, make_topic, produce
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.errors import ViewChanged
from tidelog.pipelines.app import App
from tidelog.pipelines.operators import aggregates as agg
from tidelog.pipelines.operators.time import event_time
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.spark.foreach_batch import topic_writer
from tidelog.testing.broker import TestBroker

BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def ours(tidelog_broker: TestBroker) -> Iterator[Cluster]:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        make_topic(cluster, "clicks", partitions=1)
        yield cluster


def shop(size: str) -> App:
    app = App("shop")
    app.stream("clicks", value="user string, at timestamp", event_time="at", watermark_delay="10 seconds")

    @app.topic("minutes", key="user")
    def minutes(clicks: DataFrame) -> DataFrame:
        return clicks.transform(tumbling(size, by="user", aggregates={"clicks": agg.count()}))

    return app


def clicks(*seconds: int) -> list[dict[str, Any]]:
    return [{"user": "ada", "at": (BEGIN + timedelta(seconds=each)).isoformat()} for each in seconds]


@pytest.mark.full
@proves("P1", "P3", "F4")
def test_a_topic_whose_windows_have_another_size_is_refused_with_its_place_and_goes_on_with_the_old_one(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    produce(ours, "clicks", clicks(0, 10))
    before = Driven(shop("1 minute"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    before.step()
    produce(ours, "clicks", clicks(20))
    written = committed(ours, "minutes")
    other = Driven(shop("5 minutes"), spark, ours, tidelog_broker.bootstrap, tmp_path)
    said = r"test_native_operators.py:\d+: topic minutes .*changed: constant size.*state"
    with pytest.raises(ViewChanged, match=said):
        other.step()
    assert committed(ours, "minutes") == written
    before.step()
    assert len(committed(ours, "minutes")) > len(written)


@proves("P1", "F4")
@pytest.mark.slow
def test_a_program_that_writes_by_topic_writer_is_refused_before_its_first_micro_batch_is_written(
    spark: SparkSession, tidelog_broker: TestBroker, ours: Cluster, tmp_path: Path
) -> None:
    make_topic(ours, "out", partitions=1)
    broker = {"kafka.bootstrap.servers": tidelog_broker.bootstrap}

    def run(size: str) -> None:
        rows = spark.readStream.format("tidelog").options(**broker, subscribe="clicks", startingOffsets="earliest")
        timed = rows.load().transform(event_time("timestamp", "10 seconds"))
        counts = timed.transform(tumbling(size, aggregates={"n": agg.count()}))
        writer = topic_writer("out", bootstrap=tidelog_broker.bootstrap, sink_name="counts")
        query = counts.selectExpr("cast(n as string) value").writeStream.outputMode("update").foreachBatch(writer)
        query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    produce(ours, "clicks", clicks(0))
    run("1000 days")
    produce(ours, "clicks", clicks(1))
    with pytest.raises(StreamingQueryException, match=r"'windows on a grid' in .* was made with size 1000 days"):
        run("2000 days")
    assert [row.value for _, row in committed(ours, "out")] == [b"1"]
    run("1000 days")
    assert [row.value for _, row in committed(ours, "out")] == [b"1", b"2"]
