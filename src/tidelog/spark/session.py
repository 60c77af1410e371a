"""`tidelog.spark_session()`: a Spark session tuned for streaming on the machine it runs on, or one on a cluster.

On this machine (no `master`, or a `local` one) the settings below are made; the guide says what is known of the effect
of each, and how it was taken. On a cluster, and in a program that spark-submit started, none of them applies:
checkpoints are not local files there, and the JVM's class path is not ours to choose; nor is Python, but for the
driver's own workers (`cluster_python.py`). A setting that the caller gives wins; to the caller's `spark.sql.extensions`
ours is added.

A session that runs already is returned when the same was asked for. Anything else is refused, since most settings count
only when a JVM is launched, and PySpark would leave them out without a word.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tidelog.errors import ConfigError
from tidelog.spark import class_archive, worker_daemon
from tidelog.spark.callbacks import answer_calls
from tidelog.spark.cluster_python import launch_environment
from tidelog.spark.java import find_java, java_home
from tidelog.spark.providers import PROVIDER, StateStore, provider_of
from tidelog.spark.registration import refusal, register
from tidelog.spark.worker_launch import is_local, script_for_launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_JAR = Path(__file__).parent / "checkpoint" / "checkpoint.jar"
FILE_SYSTEM = "tidelog.checkpoint.SyncedFileSystem"
FILE_CONTEXT = "tidelog.checkpoint.SyncedFileContext"
CLASS_PATH, EXTENSIONS = "spark.driver.extraClassPath", "spark.sql.extensions"
SINK_MODES = "tidelog.checkpoint.SinkModes"
DAEMON, OTHER_PYTHON = "spark.python.daemon.module", "spark.pyspark.python"
LOOPBACK = "127.0.0.1"
ASKED = "spark.tidelog.asked"  # a digest of what a session was asked for, to know the same call again
UI = "spark.ui.enabled"
UI_ADDRESS = "SPARK_LOCAL_IP"  # Spark's UI asks for no password, and would listen on all addresses
CONTEXT_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # of PySpark's errors
QUIETLY = "spark.tidelog.quiet"  # "true": for a command, which says itself what happens
LOGGING = Path(__file__).parent / "log4j2.properties"
JAVA_OPTIONS, CONF_DIR = "spark.driver.extraJavaOptions", "SPARK_CONF_DIR"
# On few cores the threads that compile well, and those that collect garbage beside, take what queries need.
FEW_CORES, COMPILE_QUICKLY, SERIAL = 2, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
A_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit has launched the JVM and tells its address


def spark_session(
    name: str = "tidelog",
    *,
    master: str | None = None,
    cores: int | None = None,
    memory: str | None = None,
    java: str | Path | None = None,
    state_store: StateStore = "heap",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on this machine, or, with a `master` such as `spark://host:7077`, on a cluster.

    `cores` are those of this machine to use, by default all that this process may; `memory` is the heap of the driver's
    JVM, such as "2g"; `java` is the folder of the Java for it. `state_store` is where queries keep their state unless
    they are started in a `tidelog.spark.state_store(...)`. `settings` are Spark's own and win over ours.
    """
    _check_pyspark()
    provider = {PROVIDER: provider_of(state_store)} if state_store != "heap" else {}
    asked = {**provider, **(settings or {})}
    wanted = wanted_settings(name, master, cores, memory, asked, submitted=SUBMITTED in os.environ)
    session = _running(wanted)
    if session is None:
        session = _launched(wanted, java)
        register(session)
        answer_calls(session)
    return session


# Spark's, of a task that failed, of its job, of the function of foreachBatch, and of the query.
FAULT_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink",
    "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchHelper",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
)


@contextmanager
def leaving_signals() -> Iterator[None]:
    """For commands, which say themselves what Ctrl-C does. From the middle of a launch on PySpark has a handler for it
    that raises wherever Python is; and a question to the JVM that is cut off so is told of with all its stack.
    """
    from pyspark.core import context

    known: Any = context
    plain = known.signal
    known.signal = SimpleNamespace(SIGINT=plain.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        known.signal = plain


def leave_errors_to_us() -> None:
    """For commands, which tell an error of a plan in one line: before PySpark raises it, it is written to standard
    error, as JSON of some kilobytes.
    """
    from pyspark.logger import PySparkLogger

    for name in CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def leave_faults_to_us(spark: SparkSession) -> None:
    """For a run, which tells what ends a query, and all of it where one line is not enough: Spark says the same four
    times over, some 200 lines of it.
    """
    import logging

    logging.getLogger("py4j.clientserver").disabled = True
    jvm: Any = spark.sparkContext._jvm
    off = jvm.org.apache.logging.log4j.Level.OFF
    for name in FAULT_LOGGERS:
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, off)


def leave_out_defaults(spark: SparkSession) -> None:
    """For a run on this machine. Two thirds of Hadoop's settings are defaults of YARN and MapReduce, and all of them go
    to the tasks of each operator with state, in each micro-batch.
    """
    if has_our_jar(spark):
        context: Any = spark.sparkContext
        jvm: Any = context._jvm
        jvm.tidelog.checkpoint.HadoopSettings.leaveOutDefaults(context._jsc.hadoopConfiguration())


def leave_out_status(spark: SparkSession) -> None:
    """For a run on this machine without Spark's UI, where nobody looks at what that would show."""
    if has_our_jar(spark) and spark.conf.get(UI, "true") == "false":
        note_no_status(spark)


def note_no_status(spark: SparkSession) -> None:
    """Spark notes with each micro-batch what its UI shows of jobs, stages and tasks, and keeps a thousand of each."""
    session: Any = spark
    context = session.sparkContext._jsc.sc()
    for store in (context.statusStore(), session._jsparkSession.sharedState().statusStore()):
        listener = store.listener()
        if listener.isDefined():
            context.listenerBus().removeListener(listener.get())


def has_our_jar(spark: SparkSession) -> bool:
    """Whether its JVM, which runs its tasks too, has the classes of our jar."""
    context: Any = spark.sparkContext
    return is_local(context.master) and str(CHECKPOINT_JAR) in context.getConf().get(CLASS_PATH, "")


def _check_pyspark() -> None:
    try:
        import pyspark
    except ImportError as missing:
        raise ConfigError("PySpark is not installed; pip install 'tidelog[spark]'") from missing
    if reason := refusal(pyspark.__version__):
        raise ConfigError(reason)


def wanted_settings(
    name: str,
    master: str | None,
    cores: int | None,
    memory: str | None,
    settings: Mapping[str, str],
    *,
    submitted: bool,
) -> dict[str, str]:
    wanted = {"spark.app.name": name}
    if memory:
        wanted["spark.driver.memory"] = memory
    if submitted or not is_local(master):
        if cores:
            raise ConfigError("cores are of this machine, and the session is on a cluster; give spark.cores.max there")
        return wanted | ({"spark.master": master} if master else {}) | dict(settings)
    cores = cores or available_cores()
    ours = local_settings(cores)
    if OTHER_PYTHON in settings:
        del ours[DAEMON]  # which may have no Tidelog to import
    if theirs := settings.get(EXTENSIONS):
        settings = {**settings, EXTENSIONS: f"{theirs},{ours[EXTENSIONS]}"}
    if settings.get(QUIETLY) == "true":
        settings = {**settings, JAVA_OPTIONS: java_options(cores, settings.get(JAVA_OPTIONS, ""), os.environ)}
    return wanted | {"spark.master": master or f"local[{cores}]"} | ours | dict(settings)


def java_options(cores: int, theirs: str, environment: Mapping[str, str]) -> str:
    """Of a command's JVM. What the caller says comes last, and wins; a garbage collector, of which Java wants to hear
    of one alone, is not named twice.
    """
    said = " ".join([theirs, *(environment.get(name, "") for name in JAVA_VARIABLES)])
    ours = [f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"'] if CONF_DIR not in environment else []
    if cores <= FEW_CORES:
        ours += [COMPILE_QUICKLY, *([] if A_COLLECTOR.search(said) else [SERIAL])]
    return " ".join([*ours, *([theirs] if theirs else [])])


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_settings(cores: int) -> dict[str, str]:
    return {
        # Nobody else's business.
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        # No process forked for a checkpoint, and none lost in a power cut.
        CLASS_PATH: str(CHECKPOINT_JAR),
        "spark.hadoop.fs.AbstractFileSystem.file.impl": FILE_CONTEXT,
        "spark.hadoop.fs.file.impl": FILE_SYSTEM,
        # For so long Python and the JVM wait for each other's first words: 15 s are few on a busy machine.
        "spark.python.authenticate.socketTimeout": "300s",
        # Workers are forks of a process that has imported what they need.
        DAEMON: worker_daemon.__name__,
        # A stage in Python answers without the delays of small TCP packets.
        "spark.python.unix.domain.socket.enabled": "true",
        # Who writes to a topic in update mode hears how to, and not only that Spark does not.
        EXTENSIONS: SINK_MODES,
        # Tasks run in the JVM that would miss their heartbeats: where the clock is set forward, or a laptop wakes up,
        # it would take itself for lost, find no way back, and end ten minutes later.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "36500d",
        # A partition of state more than there are cores is one more file to write and one more task to wait for.
        "spark.sql.shuffle.partitions": str(cores),
        # Only counts for state in RocksDB: a micro-batch writes what changed, not a snapshot.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }


def _running(wanted: Mapping[str, str]) -> SparkSession | None:
    from pyspark import SparkContext

    session = _of_this_process()
    if session is None:
        if FILE_SYSTEM in wanted.values() and not _knows_the_file_system(SparkContext):
            raise ConfigError(
                "the JVM of an earlier Spark session still runs in this process, without Tidelog's file system;"
                " make the first session by spark_session too, or begin a new process"
            )
        return None
    if session.conf.get(ASKED, None) == _digest(wanted):
        activate(session)
        return session
    raise ConfigError(
        "a Spark session with other settings runs in this process, and most settings count only at its launch;"
        " stop() it first, or give the settings to the first call"
    )


def _of_this_process() -> SparkSession | None:
    """A thread that has not made it has no active session, and Spark's builder would give it this one all the same."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()
    except PySparkRuntimeError:
        return None
    return session if session.sparkContext._jsc is not None else None


def activate(session: SparkSession) -> None:
    """In the thread that calls. Spark looks the format of a write up in a thread's active session alone, and would find
    no data source `tidelog` where there is none.
    """
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def _knows_the_file_system(context: type) -> bool:
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        return True  # none is launched yet
    path = FILE_SYSTEM.replace(".", "/") + ".class"
    return gateway.jvm.java.lang.ClassLoader.getSystemResource(path) is not None


def _digest(wanted: Mapping[str, str]) -> str:
    """A setting may be a secret, and Spark knows those by their names: so not the text itself."""
    from hashlib import sha256

    return sha256(repr(sorted(wanted.items())).encode()).hexdigest()


def _launched(wanted: Mapping[str, str], java: str | Path | None) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in {**wanted, ASKED: _digest(wanted)}.items():
        builder = builder.config(name, value)
    if SUBMITTED in os.environ:
        return builder.getOrCreate()
    found, quiet = find_java(java), wanted.get(QUIETLY) == "true"
    with java_home(found, quiet=quiet) as home:
        launching = {"JAVA_HOME": str(home)}
        if is_local(wanted.get("spark.master")):
            launching |= class_archive.launch_options(found, _jars(wanted), listing=quiet)
            if quiet and (script := script_for_launch(forks=True)) is not None:
                launching[DRIVER_PYTHON] = script
            os.environ["PYSPARK_PYTHON"] = os.environ[DRIVER_PYTHON] = sys.executable
            launching[UI_ADDRESS] = os.environ.get(UI_ADDRESS, LOOPBACK)
        else:
            launching |= launch_environment(wanted)
        with _environment(launching):
            return builder.getOrCreate()


def _jars(wanted: Mapping[str, str]) -> list[Path]:
    """What a JVM loads classes from."""
    from pyspark.find_spark_home import _find_spark_home

    own = wanted.get(CLASS_PATH, "").split(os.pathsep)
    return [*Path(_find_spark_home()).glob("jars/*.jar"), *map(Path, own)]


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """For the launch of a JVM; other programs that this one starts have their own ideas of JAVA_HOME."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
