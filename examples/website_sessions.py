"""Visits of a website: the clicks of a user with less than 30 minutes between them, told while they go on.

python examples/website_sessions.py

Needs `pip install 'tidelog[spark]'` and nothing else. A click that comes late and lies between two visits makes one of
them: what was told of the two is taken back (-D) before the one is told (+I).
"""

import tempfile
from datetime import UTC, datetime

from pyspark.sql import DataFrame

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import aggregates as agg
from tidelog.operators import event_time, session


def click(bootstrap: str, *clicks: tuple[str, str, str]) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for user, time, page in clicks:
            at = datetime.fromisoformat(f"2026-03-01T{time}").replace(tzinfo=UTC)
            producer.send("clicks", page.encode(), key=user.encode(), timestamp=round(at.timestamp() * 1000))


def show(changes: DataFrame, _: int) -> None:
    for row in changes.orderBy("_seq").collect():
        span = f"{row.window_start:%H:%M} to {row.window_end:%H:%M}"
        print(f"{row._op} {row.user} {span}: {row.clicks} clicks, from {row.entry} to {row.exit}")


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "clicks", partitions=1)
    spark = tidelog.spark_session(state_store="rocksdb", settings={"spark.sql.session.timeZone": "UTC"})
    visits = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) as user", "cast(value as string) as page", "timestamp")
        .transform(event_time("timestamp", "1 hour"))
        .transform(
            session(
                "30 minutes",
                by="user",
                aggregates={"clicks": agg.count(), "entry": agg.first("page"), "exit": agg.last("page")},
                early=True,
            )
        )
    )
    for clicks in (
        [("ada", "10:00", "/"), ("ada", "10:10", "/tides"), ("bob", "10:20", "/")],
        [("ada", "11:00", "/buy")],
        [("ada", "10:35", "/cart")],
    ):
        click(broker.bootstrap, *clicks)
        query = visits.writeStream.foreachBatch(show).option("checkpointLocation", folder).trigger(availableNow=True)
        query.start().awaitTermination()
    spark.stop()
