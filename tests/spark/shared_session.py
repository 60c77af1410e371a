"""The one Spark session of a test process: a JVM takes seconds to start, and PySpark has one for each process.

It is made as users make it, by `tidelog.spark_session`, with flags of the JVM for a short life.
"""

from __future__ import annotations

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import SparkSession

import tidelog
from spark.connector import found_jars

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
    folder = Path(mkdtemp(prefix="tidelog-spark-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    (folder / "events").mkdir()
    settings = SETTINGS | {
        "spark.eventLog.compress": "false",  # what is not in it is looked for in its bytes
        "spark.eventLog.dir": str(folder / "events"),
        "spark.eventLog.enabled": "true",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if jars := found_jars():
        settings["spark.jars"] = ",".join(map(str, jars))
    session = tidelog.spark_session("tidelog-tests", cores=2, memory="1g", settings=settings)
    atexit.register(session.stop)
    return session
