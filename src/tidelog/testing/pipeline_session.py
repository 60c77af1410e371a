"""One Spark session for all tests of a process: it takes seconds to start, so nobody starts a second one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # Tests are short: a JVM that compiles little and quickly is ahead of one that compiles well.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Several, so that what goes wrong between partitions goes wrong in tests; few, as each costs a task.
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def shared_session() -> Iterator[SparkSession]:
    """The session that runs in this process already, which stays; or a new one, which ends."""
    from pyspark.sql import SparkSession

    from tidelog.spark.session import spark_session

    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    session = spark_session("tests", cores=2, memory="1g", settings=SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
