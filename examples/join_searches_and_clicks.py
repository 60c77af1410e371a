"""Which searches lead to clicks: two streams, joined within an hour; a search that nobody clicked on comes out too.

python examples/join_searches_and_clicks.py

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import json
import tempfile
from collections import Counter
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import event_time, stream_join

SEARCHES = [
    ("10:00", {"session": "a", "query": "tides"}),
    ("10:02", {"session": "b", "query": "tides"}),
    ("10:03", {"session": "c", "query": "boats"}),
    ("23:00", {"session": "the end of the day", "query": "-"}),
]
CLICKS = [
    ("10:01", {"session": "a", "url": "/moon"}),
    ("11:02", {"session": "b", "url": "/moon"}),
    ("11:04", {"session": "c", "url": "/harbour"}),  # an hour and a minute later: not for that search
    ("23:00", {"session": "and its clicks", "url": "-"}),
]


def produce(bootstrap: str, topic: str, rows: list[tuple[str, dict[str, str]]]) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        topics.create(cluster, topic, partitions=1)
        for time, row in rows:
            at = datetime.fromisoformat(f"2026-03-01T{time}+00:00")
            producer.send(topic, json.dumps(row).encode(), timestamp=int(at.timestamp() * 1000))


def stream(spark: SparkSession, bootstrap: str, topic: str, schema: str, time: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("tidelog").options(**options).load()
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    return (
        rows.select(value, F.col("timestamp").alias(time))
        .select("row.*", time)
        .transform(event_time(time, "5 minutes"))
    )


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    produce(broker.bootstrap, "searches", SEARCHES)
    produce(broker.bootstrap, "clicks", CLICKS)
    spark = tidelog.spark_session(memory="1g")
    spark.sparkContext.setLogLevel("ERROR")
    searches = stream(spark, broker.bootstrap, "searches", "session string, query string", "searched_at")
    clicks = stream(spark, broker.bootstrap, "clicks", "session string, url string", "clicked_at")
    joined = searches.transform(stream_join(clicks, on="session", within=("0 seconds", "1 hour"), how="left"))

    trends: Counter[tuple[str, str]] = Counter()

    def count(rows: DataFrame, _: int) -> None:
        trends.update((row.query, row.url or "nothing") for row in rows.collect())

    query = joined.writeStream.foreachBatch(count).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    for (text, url), times in sorted(trends.items()):
        print(f"{text}: {times} clicked on {url}")
    spark.stop()
