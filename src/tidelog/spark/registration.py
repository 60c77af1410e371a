"""How Spark gets to know `format("tidelog")`: by `register(spark)`, or by itself, since it imports packages
`pyspark_*`.

PySpark before 4.2 has no admission control for Python sources: a query over a long topic would be one giant
micro-batch, and Trigger.AvailableNow too. So it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "tidelog"
OLDEST = (4, 2)


def register(spark: SparkSession) -> None:
    """Makes `format("tidelog")` known to this session, where packages are not looked through; lets its workers take
    longer to start than Spark waits, and children of this process leave it its connections.
    """
    import pyspark

    if reason := refusal(pyspark.__version__):
        raise ConfigError(reason)
    from tidelog.spark.jvm_connections import keep_connections
    from tidelog.spark.source import TidelogSource
    from tidelog.spark.worker_launch import connect_first

    connect_first(spark)
    keep_connections(spark)
    with unsaid(spark):
        spark.dataSource.register(TidelogSource)


@contextmanager
def unsaid(spark: SparkSession) -> Iterator[None]:
    """Spark has mostly found the source by its package already, and warns that it was replaced: by the same one."""
    try:
        session: Any = spark
        name = session._jsparkSession.sessionState().dataSourceManager().getClass().getName()
        log4j = session._jvm.org.apache.logging.log4j
        before = log4j.LogManager.getLogger(name).getLevel()
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
    except Exception:  # a session over Spark Connect, or another logger: then it is said
        yield
        return
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(name, before)


def refusal(version: str) -> str | None:
    """Why this version of PySpark will not do, or None."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return (
        f"PySpark {version} has no admission control for Python sources, without which a backlog is one micro-batch;"
        f" install pyspark>={oldest}"
    )
