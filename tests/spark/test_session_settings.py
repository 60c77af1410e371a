"""What a session is asked for, here and on a cluster; a session that runs already; the state store of one query."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming import StatefulProcessor

import tidelog
from proving import proves
from spark.shared_session import asked_for, hand_on
from tidelog.errors import ConfigError
from tidelog.spark.providers import PROVIDER, PROVIDERS, state_store
from tidelog.spark.session import (
    COMPILE_QUICKLY,
    DAEMON,
    JAVA_OPTIONS,
    QUIETLY,
    SERIAL,
    SINK_MODES,
    available_cores,
    java_options,
    leave_out_status,
    local_settings,
    note_no_status,
    wanted_settings,
)
from tidelog.spark.worker_launch import is_local


def wanted(master: str | None = None, **others: Any) -> dict[str, str]:
    arguments: dict[str, Any] = {"cores": None, "memory": None, "settings": {}, "submitted": False} | others
    return wanted_settings("a name", master, **arguments)


@proves("P1")
def test_on_this_machine_all_cores_are_used_and_the_callers_settings_win() -> None:
    ours = wanted(memory="2g", settings={"spark.sql.shuffle.partitions": "7"})
    assert ours["spark.master"] == f"local[{available_cores()}]"
    assert ours["spark.sql.shuffle.partitions"] == "7"
    assert ours["spark.driver.memory"] == "2g"
    assert ours.items() >= (local_settings(7).items() - {("spark.sql.shuffle.partitions", "7")})
    assert wanted(cores=3)["spark.master"] == "local[3]"
    assert wanted("local[1]", cores=3)["spark.master"] == "local[1]"


@proves("P1", "F1")
def test_no_jump_of_the_clock_makes_spark_take_its_own_jvm_for_lost() -> None:
    """Its heartbeats are counted by the time of day: `pipelines/app/test_clock_jumps.py` lets it jump."""
    assert wanted()["spark.storage.blockManagerHeartbeatTimeoutMs"] == "36500d"


@proves("P1")
def test_the_jvm_of_a_command_on_few_cores_compiles_quickly_and_the_callers_options_win() -> None:
    few, many = java_options(2, "", {}), java_options(3, "", {})
    assert (COMPILE_QUICKLY in few, SERIAL in few) == (True, True)
    assert (COMPILE_QUICKLY in many, SERIAL in many) == (False, False)
    assert java_options(1, "-XX:TieredStopAtLevel=4", {}).endswith(" -XX:TieredStopAtLevel=4")
    for said in ({"SPARK_SUBMIT_OPTS": "-XX:+UseG1GC"}, {"JDK_JAVA_OPTIONS": "-Xmx1g -XX:+UseParallelGC"}):
        assert SERIAL not in java_options(2, "", said), "Java refuses to start with two"
    assert SERIAL not in java_options(2, "-XX:+UseZGC", {})
    assert "log4j2" not in java_options(2, "", {"SPARK_CONF_DIR": "/etc/spark"}), "there the user's own is"
    assert JAVA_OPTIONS not in wanted(cores=2), "a program of the user's says itself what its JVM is to do"
    assert COMPILE_QUICKLY in wanted(cores=2, settings={QUIETLY: "true"})[JAVA_OPTIONS]


@proves("P1")
def test_extensions_of_the_callers_come_before_ours_and_take_none_away() -> None:
    ours = wanted()["spark.sql.extensions"]
    assert ours == SINK_MODES
    assert wanted(settings={"spark.sql.extensions": "a.B,c.D"})["spark.sql.extensions"] == f"a.B,c.D,{ours}"
    assert "spark.sql.extensions" not in wanted("spark://host:7077")


@proves("P1", "F1")
@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host", "yarn", "local-cluster[2,1,1024]"])
def test_on_a_cluster_nothing_is_set_but_what_was_asked_for(master: str) -> None:
    assert not is_local(master)
    asked = {"spark.app.name": "a name", "spark.master": master, "a": "b"}
    assert wanted(master, settings={"a": "b"}) == asked
    with pytest.raises(ConfigError, match="cores are of this machine"):
        wanted(master, cores=2)


@proves("P1", "F1")
def test_under_spark_submit_the_jvm_and_its_master_are_the_callers() -> None:
    assert wanted(submitted=True, memory="1g") == {"spark.app.name": "a name", "spark.driver.memory": "1g"}


@proves("P1")
def test_a_session_with_other_settings_that_runs_already_is_not_returned_as_ours(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"a Spark session with other settings runs in this process.*stop"):
        tidelog.spark_session(memory="3g")


@proves("P1")
def test_a_session_that_runs_already_is_found_from_every_thread(spark: SparkSession) -> None:
    """Spark has an active session for each thread, and one for all that have none."""
    refused: list[ConfigError] = []

    def ask() -> None:
        try:
            tidelog.spark_session(memory="3g")
        except ConfigError as error:
            refused.append(error)

    thread = Thread(target=ask)
    thread.start()
    thread.join()
    assert [type(one) for one in refused] == [ConfigError]


@proves("P1")
def test_a_thread_that_asks_for_the_session_can_write_by_it(spark: SparkSession) -> None:
    """Spark finds the format of a write in the active session of a thread, or not at all."""
    active: list[bool] = []

    def ask() -> None:
        active.append(SparkSession.getActiveSession() is not None)
        rows = asked_for().range(1).select(col("id").cast("string").alias("value"))
        active.append(SparkSession.getActiveSession() is not None)
        with pytest.raises(AnalysisException, match="no topic is given"):
            rows.write.format("tidelog").option("kafka.bootstrap.servers", "127.0.0.1:1").mode("append").save()
        active.append(True)

    thread = Thread(target=ask)
    thread.start()
    thread.join()
    assert active == [False, True, True]


@proves("P1")
def test_a_session_that_lost_its_activity_is_handed_on_active(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
    with pytest.warns(UserWarning, match="what ran before this test left no active Spark session"):
        hand_on("this test")
    assert SparkSession.getActiveSession() is not None


# --- the state store of one query ------------------------------------------------------------------------------------


class Last(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("last", "value bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield from rows


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()


@proves("P1")
def test_state_is_in_rocksdb_only_where_it_is_asked_for_and_only_for_that_query(
    spark: SparkSession, stream: DataFrame
) -> None:
    counts = stream.groupBy("value").count()
    processed = stream.groupBy("value").transformWithState(Last(), stream.schema, "Update", "None")
    session_choice = spark.conf.get(PROVIDER)
    assert session_choice == PROVIDERS["heap"]
    with state_store(counts):
        assert spark.conf.get(PROVIDER) == session_choice
    with state_store(counts, "rocksdb"):
        assert spark.conf.get(PROVIDER) == PROVIDERS["rocksdb"]
    with pytest.raises(ZeroDivisionError), state_store(processed.filter("value > 3")):
        assert spark.conf.get(PROVIDER) == PROVIDERS["rocksdb"]
        raise ZeroDivisionError
    assert spark.conf.get(PROVIDER) == session_choice


@proves("P1")
def test_a_state_store_that_nobody_knows_is_refused(stream: DataFrame) -> None:
    with pytest.raises(ConfigError, match="'disk' is not a state store; use heap, rocksdb"):
        state_store(stream, "disk").__enter__()  # type: ignore[arg-type]


@proves("P1")
def test_workers_of_another_python_are_forked_by_sparks_own_daemon() -> None:
    assert wanted()[DAEMON] == "tidelog.spark.worker_daemon"
    assert DAEMON not in wanted(settings={"spark.pyspark.python": "/usr/bin/python3"})


@proves("P1", "F1")
def test_defaults_of_yarn_and_mapreduce_are_left_out_of_hadoops_settings_and_what_was_set_stays(
    spark: SparkSession,
) -> None:
    jvm: Any = spark.sparkContext._jvm
    theirs: Any = spark.sparkContext._jsc.hadoopConfiguration()
    settings = jvm.org.apache.hadoop.conf.Configuration(theirs)
    settings.set("yarn.resourcemanager.hostname", "here")
    settings.set("mapreduce.fileoutputcommitter.algorithm.version", "1")
    assert jvm.tidelog.checkpoint.HadoopSettings.leaveOutDefaults(settings) > 500
    assert settings.get("yarn.resourcemanager.address") is None and settings.get("mapreduce.job.maps") is None
    assert settings.get("yarn.resourcemanager.hostname") == "here"
    assert settings.get("mapreduce.fileoutputcommitter.algorithm.version") == "1"
    for name in ("fs.file.impl", "fs.s3a.impl", "io.file.buffer.size", "hadoop.security.authentication"):
        assert settings.get(name) == theirs.get(name) is not None
    assert jvm.tidelog.checkpoint.HadoopSettings.leaveOutDefaults(settings) == 0


@proves("P1")
def test_what_sparks_ui_would_show_is_not_noted_in_a_run_without_it(spark: SparkSession) -> None:
    bus: Any = spark.sparkContext._jsc.sc().listenerBus()

    def noting() -> dict[str, Any]:
        found = {one.getClass().getSimpleName(): one for one in bus.listeners()}
        return {name: one for name, one in found.items() if "AppStatus" in name}

    before = noting()
    leave_out_status(spark)
    assert set(before) == set(noting()) == {"AppStatusListener", "SQLAppStatusListener"}, "this session has its UI"
    note_no_status(spark)
    try:
        assert not noting()
        note_no_status(spark)
        assert spark.range(3).count() == 3, "nothing waits for it"
    finally:
        for one in before.values():
            bus.addToStatusQueue(one)
