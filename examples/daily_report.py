"""A report every day over the last seven days, for every shop: also for one that sold nothing, and on silent days.

python examples/daily_report.py

Needs `pip install 'tidelog[spark]'` and nothing else.
"""

import json
import tempfile
from datetime import UTC, datetime

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import aggregates as agg
from tidelog.operators import event_time, hopping

SALES = [("2026-03-01", "harbour", 120), ("2026-03-02", "station", 80), ("2026-03-11", "harbour", 40)]
SHOPS = ["harbour", "station", "airport"]

with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "sales", partitions=1)
        with Producer(cluster) as producer:
            for day, shop, price in SALES:
                at = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC)
                value = json.dumps({"shop": shop, "price": price}).encode()
                producer.send("sales", value, timestamp=round(at.timestamp() * 1000))
    spark = tidelog.spark_session(state_store="rocksdb", settings={"spark.sql.session.timeZone": "UTC"})
    reports = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "sales")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value as string), 'shop string, price int') as sale", "timestamp")
        .select("sale.*", "timestamp")
        .transform(event_time("timestamp", "1 hour"))
        .transform(
            hopping(
                "7 days",
                every="1 day",
                by="shop",
                aggregates={"sales": agg.count(), "total": agg.sum("price")},
                emit="always",
                keys=SHOPS,
            )
        )
    )
    query = reports.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start(f"{folder}/reports").awaitTermination()
    found = spark.read.parquet(f"{folder}/reports").orderBy("window_end", "shop").collect()
    for row in found:
        if row.window_end.day in (3, 9, 10):
            print(f"{row.window_start:%d %B} to {row.window_end:%d %B}, {row.shop}: {row.sales} sales, {row.total}")
    print(len({row.window_end for row in found}), "days,", len(found), "lines")
    spark.stop()
