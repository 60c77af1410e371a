"""A moving average of the water's level, which moves when a reading enters the last ten minutes and when one leaves.

python examples/moving_average.py

Needs `pip install 'tidelog[spark]'` and nothing else.
"""

import json
import tempfile
from datetime import UTC, datetime

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import aggregates as agg
from tidelog.operators import event_time, sliding

READINGS = [("10:00", 3.0), ("10:04", 3.2), ("10:09", 3.4), ("10:12", 3.6), ("10:30", 2.0), ("11:30", 2.2)]

with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "levels", partitions=1)
        with Producer(cluster) as producer:
            for time, level in READINGS:
                at = datetime.fromisoformat(f"2026-03-01T{time}").replace(tzinfo=UTC)
                value = json.dumps({"gauge": "north pier", "level": level}).encode()
                producer.send("levels", value, timestamp=round(at.timestamp() * 1000))
    spark = tidelog.spark_session(state_store="rocksdb", settings={"spark.sql.session.timeZone": "UTC"})
    averages = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "levels")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value as string), 'gauge string, level double') as reading", "timestamp")
        .select("reading.*", "timestamp")
        .transform(event_time("timestamp", "1 minute"))
        .transform(sliding("10 minutes", by="gauge", aggregates={"level": agg.mean("level"), "of": agg.count()}))
    )
    query = averages.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start(f"{folder}/averages").awaitTermination()
    for row in spark.read.parquet(f"{folder}/averages").orderBy("window_end").collect():
        print(f"{row.window_end:%H:%M:%S.%f} {row.level:.2f} of {row.of}")
    spark.stop()
