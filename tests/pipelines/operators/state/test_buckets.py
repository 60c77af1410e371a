"""Bucket ids that Spark spreads evenly: its hash in Python, and what is chosen by it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from proving import proves
from tidelog.pipelines.operators.state.buckets import bucket_ids, murmur3, partition_of


@proves("P1")
@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 8, 200])
@pytest.mark.parametrize("share", [1, 4])
def test_every_partition_gets_as_many_buckets_as_the_next(partitions: int, share: int) -> None:
    ids = bucket_ids(partitions, partitions * share)
    places = [partition_of(bucket, partitions) for bucket in ids]
    assert len(set(ids)) == partitions * share
    assert {places.count(place) for place in range(partitions)} == {share}


@proves("P1")
def test_the_hash_is_spark_s_own(spark: SparkSession) -> None:
    numbers = [0, 1, 2, 3, 41, 2**31 - 1, -1, -(2**31)]
    found = spark.createDataFrame([(number,) for number in numbers], "number int").select(F.hash("number")).collect()
    assert [row[0] for row in found] == [murmur3(number) for number in numbers]
