"""How busy machines were in the last five minutes, every minute: windows that overlap, by Spark's own operator.

python examples/cpu_load.py

Needs `pip install 'tidelog[spark]'` and nothing else.
"""

import json
import tempfile
from datetime import UTC, datetime, timedelta

import tidelog
from tidelog.client import Cluster, Producer, topics
from tidelog.operators import aggregates as agg
from tidelog.operators import event_time, hopping

START = datetime(2026, 3, 1, 10, 3, tzinfo=UTC)

with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "cpu", partitions=1)
        with Producer(cluster) as producer:
            for second in range(0, 600, 10):
                at = START + timedelta(seconds=second)
                value = json.dumps({"host": "web-1", "busy": 20 if second < 300 else 80}).encode()
                producer.send("cpu", value, key=b"web-1", timestamp=round(at.timestamp() * 1000))
    spark = tidelog.spark_session(settings={"spark.sql.session.timeZone": "UTC"})
    load = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "cpu")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("from_json(cast(value as string), 'host string, busy int') as sample", "timestamp")
        .select("sample.*", "timestamp")
        .transform(event_time("timestamp", "5 seconds"))
        .transform(
            hopping(
                "5 minutes",
                every="1 minute",
                by="host",
                aggregates={"busy": agg.mean("busy"), "peak": agg.max("busy"), "samples": agg.count()},
            )
        )
    )
    query = load.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start(f"{folder}/load").awaitTermination()
    for row in spark.read.parquet(f"{folder}/load").orderBy("window_start").collect():
        span = f"{row.window_start:%H:%M:%S} to {row.window_end - timedelta(seconds=1):%H:%M:%S}"
        print(f"{span} {row.host}: {row.busy:.0f} %, at most {row.peak} %, {row.samples} samples")
    spark.stop()
