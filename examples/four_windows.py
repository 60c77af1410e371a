"""The four kinds of windows over the same actions of users, each at its edges.

python examples/four_windows.py

Needs `pip install 'tidelog[spark]'` and nothing else. A minute is from 10:03:00 to 10:03:59 and no further; of five
minutes every minute, those from 10:03:00 to 10:07:59 are one; two actions that are 30 minutes apart are within 30
minutes, and a millisecond more is too much; a session is over after 30 minutes without an action.
"""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import aggregates as agg
from tidelog.operators import event_time, hopping, session, sliding, tumbling

ACTIONS = [
    ("ada", "10:03:00.000"),
    ("ada", "10:03:59.999"),
    ("ada", "10:04:00.000"),
    ("ada", "10:07:59.999"),
    ("bob", "10:08:00.000"),
    ("bob", "10:38:00.000"),  # 30 minutes later
    ("bob", "11:08:00.001"),  # and a millisecond more
    ("nobody", "14:00:00.000"),  # what is before this is over
]
COUNTED = {"by": "user", "aggregates": {"actions": agg.count()}}
WINDOWS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a minute": tumbling("1 minute", **COUNTED),
    "five minutes every minute": hopping("5 minutes", every="1 minute", **COUNTED),
    "within 30 minutes": sliding("30 minutes", **COUNTED),
    "a session": session("30 minutes", **COUNTED),
}


def act(bootstrap: str) -> None:
    with Cluster(bootstrap) as cluster:
        topics.create(cluster, "actions", partitions=1)
        with Producer(cluster) as producer:
            for user, time in ACTIONS:
                at = datetime.fromisoformat(f"2026-03-01T{time}").replace(tzinfo=UTC)
                producer.send("actions", b"click", key=user.encode(), timestamp=round(at.timestamp() * 1000))


def counted(spark: SparkSession, bootstrap: str, window: Callable[[DataFrame], DataFrame], folder: str) -> DataFrame:
    """What a query over the topic has written when it has read all of it."""
    counts = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "actions")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) as user", "timestamp")
        .transform(event_time("timestamp", "1 minute"))
        .transform(window)
    )
    query = counts.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start(f"{folder}/counts").awaitTermination()
    return spark.read.parquet(f"{folder}/counts")


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    act(broker.bootstrap)
    spark = tidelog.spark_session(state_store="rocksdb", settings={"spark.sql.session.timeZone": "UTC"})
    for name, window in WINDOWS.items():
        counts = counted(spark, broker.bootstrap, window, f"{folder}/{name}")
        for row in counts.orderBy("window_start", "window_end").collect():
            span = f"{row.window_start:%H:%M:%S.%f} to {row.window_end:%H:%M:%S.%f}"
            print(f"{name}: {span} {row.user} {row.actions}")
    spark.stop()
