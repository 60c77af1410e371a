"""By hand, as Spark's guide has it: Spark's own Kafka connector on both ends, an aggregate in update mode. That sink
knows no transaction: after a fault rows are there twice.
"""

from __future__ import annotations

from bench.pipelines.sides.marks import work
from bench.pipelines.sides.spark import connector_jars
from bench.session import QUIET
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

CORES = 2


def main() -> None:
    given = work()
    settings = {
        **QUIET,
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.local.dir": given["folder"],
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("fresh")
    for name, value in settings.items():
        builder = builder.config(name, value)
    reader = builder.getOrCreate().readStream.format("kafka").option("kafka.bootstrap.servers", given["bootstrap"])
    records = reader.option("subscribe", given["topic"]).option("startingOffsets", "earliest").load()
    value = F.from_json(F.col("value").cast("string"), "key long, number long").alias("row")
    rows = records.select(value).select("row.*")
    counted = rows.groupBy("key").agg(F.count("*").alias("records"), F.max("number").alias("newest"))
    made = counted.select(F.col("key").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
    writer = made.writeStream.format("kafka").outputMode("update").option("topic", given["output"])
    where = {"kafka.bootstrap.servers": given["bootstrap"], "checkpointLocation": f"{given['folder']}/checkpoint"}
    writer.options(**where).start().awaitTermination()


if __name__ == "__main__":
    main()
