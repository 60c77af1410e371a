"""Sessions of Spark in benches: what keeps them quiet, and how one goes away wholly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def end_with_jvm(session: SparkSession) -> None:
    """`stop` alone leaves the JVM, in the way of what is measured next."""
    session.stop()
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
