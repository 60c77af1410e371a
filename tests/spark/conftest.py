"""The brokers of the contract, topics to read, and one Spark session for all tests of a process."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from contract import broker, cluster, group, kafka, topic, version_1_kafka
from spark.mortal_broker import mortal_broker
from spark.shared_session import running_spark

__all__ = ["broker", "cluster", "group", "kafka", "mortal_broker", "topic", "version_1_kafka"]


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return running_spark()
