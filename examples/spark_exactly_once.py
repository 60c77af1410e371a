"""From topic to topic, exactly once: a query that forgets that it had committed writes nothing twice.

python examples/spark_exactly_once.py

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import tidelog
from tidelog.client import Cluster, Consumer, Producer, TopicPartition, groups, topics

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers run the same Python, not the first on the path
local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


def bill(spark: SparkSession, bootstrap: str, checkpoint: str) -> None:
    """An invoice for each order that is there."""
    orders = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    invoices = orders.selectExpr("key", "concat('invoice for ', cast(value as string)) as value")
    query = invoices.writeStream.format("tidelog").queryName("billing").trigger(availableNow=True)
    query = query.option("kafka.bootstrap.servers", bootstrap).option("topic", "invoices")
    query.option("checkpointLocation", checkpoint).start().awaitTermination()


def committed(cluster: Cluster, topic: str) -> int:
    consumer = Consumer(cluster, read_committed=True, max_wait_ms=100)
    consumer.assign(dict.fromkeys(cluster.partitions(topic), 0))
    found = 0
    while fetched := consumer.fetch():
        found += sum(len(list(one.rows())) for one in fetched)
    return found


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder, Cluster(broker.bootstrap) as cluster:
    for topic in ("orders", "invoices"):
        topics.create(cluster, topic, partitions=2)
    with Producer(cluster) as producer:
        for number in range(100):
            producer.send("orders", b"order %d" % number, key=b"%d" % number)
    spark = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    bill(spark, broker.bootstrap, f"{folder}/checkpoint")
    print("invoices:", committed(cluster, "invoices"))
    for commit in (Path(folder) / "checkpoint" / "commits").iterdir():
        commit.unlink()
    bill(spark, broker.bootstrap, f"{folder}/checkpoint")
    print("after a crash before Spark's own commit:", committed(cluster, "invoices"))
    read = groups.committed(cluster, "tidelog.billing")
    print("billing has read", sum(read[TopicPartition("orders", index)].offset for index in range(2)), "orders")
    spark.stop()
