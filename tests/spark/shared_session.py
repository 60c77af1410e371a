"""The one Spark session of a test process: a JVM takes seconds to start, and PySpark has one for each process.

It is made as users make it, by `tidelog.spark_session`, with flags of the JVM for a short life.
"""

from __future__ import annotations

import atexit
import warnings
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import SparkSession

import tidelog
from spark.connector import found_jars
from tidelog.spark.session import activate

SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"  # compiling well does not pay
SETTINGS = {
    "spark.driver.extraJavaOptions": SHORT_LIFE,
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.port": "0",  # what is not shown there is looked for in its pages
    "spark.ui.showConsoleProgress": "false",
}


@cache
def running_spark() -> SparkSession:
    """It ends with this process, whichever test was the last to need it."""
    session = asked_for()
    atexit.register(session.stop)
    return session


def asked_for() -> SparkSession:
    return tidelog.spark_session("tidelog-tests", cores=2, memory="1g", settings=settings())


@cache
def settings() -> dict[str, str]:
    folder = Path(mkdtemp(prefix="tidelog-spark-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    (folder / "events").mkdir()
    found = SETTINGS | {
        "spark.eventLog.compress": "false",  # what is not in it is looked for in its bytes
        "spark.eventLog.dir": str(folder / "events"),
        "spark.eventLog.enabled": "true",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if jars := found_jars():
        found["spark.jars"] = ",".join(map(str, jars))
    return found


def hand_on(test: str) -> None:
    """From test to test, as active as when it was made. Who leaves it otherwise is told of."""
    if running_spark.cache_info().currsize and SparkSession.getActiveSession() is None:
        warnings.warn(f"what ran before {test} left no active Spark session in this thread", stacklevel=2)
        activate(running_spark())
