"""Tax by the rate of the day: rates change, and a replay a year later gives the same invoices.

python examples/tax_rates.py

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import json
import tempfile
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import enrich, event_time

KEEP = {"cleanup.policy": "delete", "retention.ms": "-1"}  # a compacted topic would have the last rate only
RATES = [("2025-01-01", {"kind": "food", "percent": 7}), ("2025-07-01", {"kind": "food", "percent": 5})]
SALES = [
    ("2025-06-30", {"sale": 1, "kind": "food", "cents": 1000}),
    ("2025-07-01", {"sale": 2, "kind": "food", "cents": 1000}),
]
LAST_DAY = "2025-12-31"
NEXT_YEAR = [("2026-01-01", {"kind": "food", "percent": 9})]


def produce(bootstrap: str, topic: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for day, row in rows:
            at = int(datetime.fromisoformat(f"{day}T00:00+00:00").timestamp() * 1000)
            producer.send(topic, json.dumps(row).encode(), key=row["kind"].encode(), timestamp=at)


def read(spark: SparkSession, bootstrap: str, topic: str, schema: str, time: str, *, streaming: bool) -> DataFrame:
    reader = spark.readStream if streaming else spark.read
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = reader.format("tidelog").options(**options).load()
    value = F.from_json(F.col("value").cast("string"), schema).alias("row")
    return rows.select(value, F.col("timestamp").alias(time)).select("row.*", time).transform(event_time(time, "1 day"))


def invoices(spark: SparkSession, bootstrap: str, *, streaming: bool, as_of: str = "event time") -> DataFrame:
    """One program, for the stream and for the replay."""
    rates = read(spark, bootstrap, "rates", "kind string, percent int", "since", streaming=streaming)
    sales = read(spark, bootstrap, "sales", "sale int, kind string, cents int", "sold_at", streaming=streaming)
    taxed = sales.transform(enrich(rates, on="kind", as_of=as_of, horizon="730 days"))
    return taxed.select("sale", (F.col("cents") * F.col("percent") / 100).cast("int").alias("tax"))


def said(rows: DataFrame) -> dict[int, int]:
    return {row.sale: row.tax for row in rows.where("sale > 0").orderBy("sale").collect()}


found: dict[int, int] = {}

with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("rates", "sales"):
            topics.create(cluster, topic, partitions=1, configs=KEEP)
    end = [(LAST_DAY, {"kind": "none", "percent": 0, "sale": 0, "cents": 0})]  # event time goes on
    produce(broker.bootstrap, "rates", RATES + end)
    produce(broker.bootstrap, "sales", SALES + end)
    spark = tidelog.spark_session(memory="1g", state_store="rocksdb")
    spark.sparkContext.setLogLevel("ERROR")
    query = invoices(spark, broker.bootstrap, streaming=True).writeStream.trigger(availableNow=True)
    query = query.foreachBatch(lambda rows, _: found.update(said(rows)))
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    print("taxed as they were sold:", found)

    produce(broker.bootstrap, "rates", NEXT_YEAR)
    replayed = said(invoices(spark, broker.bootstrap, streaming=False))
    print("replayed a year later:", replayed, "the same:", replayed == found)
    print("by the rate of today:", said(invoices(spark, broker.bootstrap, streaming=False, as_of="latest")))
    spark.stop()
