"""A stream over a topic: Spark counts words as they come, goes on after a stop, and counts none twice.

python examples/spark_topics.py

Needs `pip install 'tidelog[spark]'` and nothing else but Java 17.
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

import tidelog
from tidelog.client import Cluster, Producer, topics

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers run the same Python, not the first on the path
local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}


def say(bootstrap: str, text: str) -> None:
    with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
        for word in text.split():
            producer.send("words", word.encode(), key=word.encode())


def read_what_is_there(spark: SparkSession, bootstrap: str, folder: str) -> None:
    words = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "words")
        .option("startingOffsets", "earliest")
        .load()
        .select(expr("cast(value as string) as word"), "partition", "offset")
    )
    query = words.writeStream.format("parquet").trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/words").awaitTermination()


with tidelog.Broker() as broker, tempfile.TemporaryDirectory() as folder:
    with Cluster(broker.bootstrap) as cluster:
        topics.create(cluster, "words", partitions=3)
    spark = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    say(broker.bootstrap, "the tide comes and the tide goes")
    read_what_is_there(spark, broker.bootstrap, folder)
    say(broker.bootstrap, "and comes again")
    read_what_is_there(spark, broker.bootstrap, folder)
    counts = spark.read.parquet(f"{folder}/words").groupBy("word").count().orderBy("word").collect()
    print(", ".join(f"{row.word} {row['count']}" for row in counts))
    spark.stop()
