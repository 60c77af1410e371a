"""`tidelog.spark_session()`: a Spark session tuned for streaming on the machine it runs on, or one on a cluster.

On this machine (no `master`, or a `local[...]` one) each setting below is there for a measured effect, which the guide
names: no process is forked for a checkpoint, and what is in one survives a power cut; Python workers are reached by
Unix sockets; there are as many shuffle partitions as cores. On a cluster none of this applies, checkpoints are not
local files and Java and Python are the cluster's: there only the source and sink are made known.

A setting that the caller gives wins over one of ours. A session that runs already is returned when it is one of these
and nothing else is asked for; anything else is refused, because most settings count only when a JVM is launched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import ConfigError
from tidelog.spark.java import find_java, java_home
from tidelog.spark.registration import refusal, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_JAR = Path(__file__).parent / "checkpoint" / "checkpoint.jar"
FILE_SYSTEM = "tidelog.checkpoint.SyncedFileSystem"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOOPBACK = "127.0.0.1"
ASKED = "spark.tidelog.asked"  # what a session of ours was asked for, to compare another call with


def spark_session(
    name: str = "tidelog",
    *,
    master: str | None = None,
    cores: int | None = None,
    memory: str | None = None,
    java: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this machine, or, with a `master` such as `spark://host:7077`, on a cluster.

    `cores` and `memory` (of the JVM, such as "2g") are for this machine; `java` is the folder of a Java to use.
    """
    import pyspark

    if reason := refusal(pyspark.__version__):
        raise ConfigError(reason)
    local = master is None or master.startswith("local")
    if not local and (cores or memory or java):
        raise ConfigError(f"cores, memory and java are of this machine, and master is {master}; use settings")
    cores = cores or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores or os.cpu_count() or 1
    wanted = {"spark.app.name": name, "spark.master": master or f"local[{cores}]"}
    if local:
        wanted |= local_settings(cores) | ({"spark.driver.memory": memory} if memory else {})
    wanted |= settings or {}
    session = _running(wanted) or _launched(wanted, java, local)
    register(session)
    return session


def local_settings(cores: int) -> dict[str, str]:
    """What a session on this machine gets, with the reason for each; the guide has the figures."""
    return {
        # Reached by nobody else.
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        # Checkpoints: no forks, and synced.
        "spark.driver.extraClassPath": str(CHECKPOINT_JAR),
        "spark.hadoop.fs.file.impl": FILE_SYSTEM,
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        # Small micro-batches.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": str(cores),
    }


def _running(wanted: Mapping[str, str]) -> SparkSession | None:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        return None
    if session.conf.get(ASKED, None) == _asked(wanted):
        return session
    raise ConfigError(
        "a Spark session runs in this process already, with other settings, and most of them count only at launch;"
        " stop() it first, or give your settings to the first call of spark_session"
    )


def _asked(wanted: Mapping[str, str]) -> str:
    return " ".join(f"{name}={wanted[name]}" for name in sorted(wanted))


def _launched(wanted: dict[str, str], java: str | Path | None, local: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in (wanted | {ASKED: _asked(wanted)}).items():
        builder = builder.config(name, value)
    with _launching(java, local):
        return builder.getOrCreate()


@contextmanager
def _launching(java: str | Path | None, local: bool) -> Iterator[None]:
    """JAVA_HOME counts for the launch alone; Spark asks for PYSPARK_PYTHON later too."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    before = os.environ.get("JAVA_HOME")
    with java_home(find_java(java)) as home:
        os.environ["JAVA_HOME"] = str(home)
        try:
            yield
        finally:
            del os.environ["JAVA_HOME"]
            if before is not None:
                os.environ["JAVA_HOME"] = before
