"""A machine so busy that the worker which a fold's query begins with takes longer to start than Spark waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from pipelines.operators.state import counting
from proving import proves
from spark.slow_python import slow_python
from tidelog.pipelines.operators.state.operator import run_fold
from tidelog.spark.providers import state_store
from tidelog.testing.pipeline_session import travelling_whole


@pytest.mark.full
@proves("P1", "F1")
def test_a_fold_runs_in_a_query_whose_worker_takes_longer_to_start_than_spark_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    rows = rate.selectExpr("'a' as key", "value", "unix_millis(timestamp) as at")
    with slow_python(spark, tmp_path) as started, travelling_whole(counting):
        counts = run_fold(rows, ["key"], counting.Counting())
        with state_store(counts):
            counted = counts.writeStream.format("memory").queryName("slow_fold").trigger(availableNow=True).start()
        counted.awaitTermination()
    assert spark.table("slow_fold").collect()[0] == Row(key="a", n=10, last=9, forgotten=False)
    assert "transform_with_state_driver_worker" in started.read_text()
