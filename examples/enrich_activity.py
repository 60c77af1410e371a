"""Activity with profiles that change: each event with the profile as it was when the event happened.

python examples/enrich_activity.py

Ada moves from Kiel to Husum at 11:00. What she did before, she did in Kiel; also when its row comes after the move.
Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import json
import tempfile
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import enrich, event_time

KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}  # every version of a profile, for replays

PROFILES = [
    ("09:00", "ada", {"city": "Kiel"}),
    ("09:00", "bob", {"city": "Bonn"}),
    ("11:00", "ada", {"city": "Husum"}),
    ("11:30", "bob", None),  # Bob leaves
    ("23:00", "nobody", {"city": "-"}),
]
ACTIVITY = [
    ("11:00", "ada", {"page": "/tides"}),
    ("10:59", "ada", {"page": "/boats"}),
    ("11:29", "bob", {"page": "/boats"}),
    ("11:31", "bob", {"page": "/tides"}),
    ("23:00", "nobody", {"page": "-"}),
]


def produce(bootstrap: str, topic: str, rows: list[tuple[str, str, dict[str, str] | None]]) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, topic, partitions=1, configs=KEEP)
        for time, user, row in rows:
            at = int(datetime.fromisoformat(f"2026-03-01T{time}+00:00").timestamp() * 1000)
            producer.send(topic, None if row is None else json.dumps(row).encode(), key=user.encode(), timestamp=at)


def stream(spark: SparkSession, bootstrap: str, topic: str, schema: str, time: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("tidelog").options(**options).load()
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    named = rows.select(F.col("key").cast("string").alias("user"), value, F.col("timestamp").alias(time))
    return named.select("user", "row.*", time).transform(event_time(time, "5 minutes"))


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    produce(broker.bootstrap, "profiles", PROFILES)
    produce(broker.bootstrap, "activity", ACTIVITY)
    spark = tidelog.spark_session(memory="1g", state_store="rocksdb")
    spark.sparkContext.setLogLevel("ERROR")
    profiles = stream(spark, broker.bootstrap, "profiles", "city string", "since")
    activity = stream(spark, broker.bootstrap, "activity", "page string", "at")
    enriched = activity.transform(enrich(profiles, on="user", deleted="city is null"))

    def show(rows: DataFrame, _: int) -> None:
        for row in rows.orderBy("at").collect():
            print(f"{row.at:%H:%M} {row.user} read {row.page} in {row.city}")

    query = enriched.writeStream.foreachBatch(show).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    spark.stop()
