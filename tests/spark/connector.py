"""Spark's own Kafka connector, to compare with: four jars that Maven gets, since no pip package has them.

They lie in the folder that TIDELOG_SPARK_KAFKA_LIB names, else in `.make/spark-kafka/lib` of the repository, which
`make spark-kafka` fills from `pom.xml` here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CONNECTOR = "kafka"
REPOSITORY = Path(__file__).resolve().parents[2]


def found_jars() -> list[Path]:
    folder = Path(os.environ.get("TIDELOG_SPARK_KAFKA_LIB") or REPOSITORY / ".make" / "spark-kafka" / "lib")
    return sorted(folder.glob("*.jar"))


def connector_jars() -> list[Path]:
    jars = found_jars()
    if not jars:
        pytest.skip("no jars of Spark's Kafka connector; run `make spark-kafka` (Maven)")
    return jars
