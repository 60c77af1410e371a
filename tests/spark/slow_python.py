"""A Python that takes longer to start than Spark waits for a worker, as on a machine that is busy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark import register

SPARK_WAITS_S = 10  # for a worker that it starts itself; those that its daemon forks it waits for without end
SLOW_S = 15


@contextmanager
def slow_python(spark: SparkSession, folder: Path) -> Iterator[Path]:
    """Inside of this, what is given to Spark runs in such a Python. The file yielded has a line for each worker that
    started slowly.
    """
    started = folder / "started"
    script = folder / "python"
    script.write_text(
        f"""#!/bin/sh
case "$*" in -c*|*pyspark.daemon*) ;; *) sleep {SLOW_S}; echo "$*" >> {started} ;; esac
exec {sys.executable} "$@"
"""
    )
    script.chmod(0o700)
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = str(script)
    try:
        register(spark)
        yield started
    finally:
        context.pythonExec = before
        register(spark)
