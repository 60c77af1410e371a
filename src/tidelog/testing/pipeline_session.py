"""One Spark session for all tests of a process: it takes seconds to start, so nobody starts a second one.

Functions and classes of a pipeline travel to Spark's workers, mostly as names, to be imported there. So workers look
for modules where the test process does; and what stands in a test module itself travels whole, since to import that
one would be to import pytest, fixtures and all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
    session = spark_session("tests", cores=2, memory="1g", settings={**SETTINGS, **module_path()})
    session.sparkContext.setLogLevel("OFF")  # an error of a query is raised in the test that runs it
    try:
        yield session
    finally:
        session.stop()


def module_path() -> dict[str, str]:
    """A setting by which workers find the modules that this process finds."""
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def travelling_whole(module: ModuleType) -> Iterator[None]:
    """Inside of this, what stands in the module is sent to workers itself and not by its name."""
    from pyspark import cloudpickle

    pickle: Any = cloudpickle
    if module.__name__ in pickle.list_registry_pickle_by_value():
        yield
        return
    pickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        pickle.unregister_pickle_by_value(module)
