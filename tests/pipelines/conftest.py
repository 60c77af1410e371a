"""The brokers of the contract, and the one Spark session of a test process."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from contract import broker, cluster, group, kafka, topic
from spark.conftest import spark

__all__ = ["broker", "cluster", "group", "kafka", "spark", "topic"]


@pytest.fixture(scope="session")
def tidelog_spark(spark: SparkSession) -> SparkSession:
    """For the driver of pipelines: a process has one session."""
    return spark
