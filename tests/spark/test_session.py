"""A real Spark session reads topics of a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from logging import StreamHandler
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, window
from pyspark.sql.streaming import StreamingQuery

import tidelog
import tidelog.spark
from proving import proves
from spark.filling import fill, numbers
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.client.security import Security
from tidelog.spark.registration import register, unsaid
from tidelog.spark.session import CONTEXT_LOGGERS, leave_errors_to_us
from tidelog.testing.broker import TestBroker

PATIENCE_S = 240
START = 1_700_000_000_000
SECRET = "a phrase that stands nowhere"  # without a word by which Spark itself would leave it out


def stream(spark: SparkSession, broker: str, **options: str) -> DataFrame:
    return spark.readStream.format("tidelog").option("kafka.bootstrap.servers", broker).options(**options).load()


def batch(spark: SparkSession, broker: str, **options: str) -> DataFrame:
    return spark.read.format("tidelog").option("kafka.bootstrap.servers", broker).options(**options).load()


def run_to_end(frame: DataFrame, checkpoint: Path, table: Path) -> list[Any]:
    """All that is there now, into files; the progress of each micro-batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(table))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    return list(query.recentProgress)


@pytest.fixture
def filled(tidelog_session_broker: TestBroker) -> tuple[str, str]:
    """A broker and a topic of 40 and 20 numbers in two partitions."""
    topic = tidelog_session_broker.unique("numbers")
    with Cluster(tidelog_session_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=2)
        fill(cluster, topic, 0, numbers(0, 40))
        fill(cluster, topic, 1, numbers(40, 60))
    return tidelog_session_broker.bootstrap, topic


@proves("P1", "B1")
def test_a_topic_is_a_dataframe_without_a_word_of_registration(spark: SparkSession, filled: tuple[str, str]) -> None:
    broker, topic = filled
    frame = batch(spark, broker, subscribe=topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    found = frame.selectExpr("cast(value as string) as value", "partition", "offset", "topic", "headers").collect()
    assert sorted(int(row.value) for row in found) == list(range(60))
    assert {(row.partition, row.offset) for row in found} == {(0, n) for n in range(40)} | {(1, n) for n in range(20)}
    assert {(row.topic, row.headers) for row in found} == {(topic, None)}


@proves("P1")
def test_a_schema_of_some_columns_reads_no_others(spark: SparkSession, filled: tuple[str, str]) -> None:
    broker, topic = filled
    tidelog.spark.register(spark)
    some = spark.read.format("tidelog").schema("offset bigint, value binary")
    frame = some.option("kafka.bootstrap.servers", broker).option("subscribe", topic).load()
    assert Row(offset=19, value=bytearray(b"59")) in frame.collect()
    with pytest.raises(PySparkException, match="column what string is not of this source"):
        spark.read.format("tidelog").schema("what string").option("kafka.bootstrap.servers", broker).option(
            "subscribe", topic
        ).load().collect()


@proves("P1", "F1")
@pytest.mark.slow
def test_a_query_goes_on_from_its_checkpoint_and_from_one_of_the_connectors_form(
    spark: SparkSession, filled: tuple[str, str], tmp_path: Path
) -> None:
    broker, topic = filled
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    progress = run_to_end(stream(spark, broker, **options), tmp_path / "checkpoint", tmp_path / "table")
    assert [one.numInputRows for one in progress] == [30, 30]
    _as_the_connector_writes(tmp_path / "checkpoint" / "offsets")
    with Cluster(broker) as cluster:
        fill(cluster, topic, 1, numbers(60, 70))
    progress = run_to_end(stream(spark, broker, **options), tmp_path / "checkpoint", tmp_path / "table")
    assert sum(one.numInputRows for one in progress) == 10
    assert _numbers(spark, tmp_path / "table") == list(range(70))


def _as_the_connector_writes(folder: Path) -> None:
    """The offsets of the last micro-batch without spaces and in another order, as a hash table has them."""
    last = max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    lines = last.read_text().splitlines()
    offsets = json.loads(lines[-1])
    turned = {name: dict(reversed(partitions.items())) for name, partitions in reversed(offsets.items())}
    lines[-1] = json.dumps(turned, separators=(",", ":"))
    last.write_text("\n".join(lines))
    (folder / f".{last.name}.crc").unlink(missing_ok=True)


def _numbers(spark: SparkSession, table: Path) -> list[int]:
    return sorted(int(bytes(row.value)) for row in spark.read.parquet(str(table)).select("value").collect())


@proves("P1")
@pytest.mark.slow
def test_a_running_query_sees_new_records_and_new_partitions(
    spark: SparkSession, filled: tuple[str, str], tmp_path: Path
) -> None:
    broker, topic = filled
    frame = stream(spark, broker, subscribe=topic, startingOffsets="earliest").selectExpr("partition", "offset")
    query = frame.writeStream.format("memory").queryName("grows").option("checkpointLocation", str(tmp_path)).start()
    try:
        _wait_for(spark, query, 60)
        with Cluster(broker) as cluster:
            topics.add_partitions(cluster, topic, 3)
            fill(cluster, topic, 2, numbers(0, 5))
            fill(cluster, topic, 0, numbers(0, 2))
        _wait_for(spark, query, 67)
    finally:
        query.stop()
    assert spark.table("grows").distinct().count() == 67


def _wait_for(spark: SparkSession, query: StreamingQuery, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (have := spark.table(str(query.name)).count()) < count:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, f"{have} rows of {count}"
        time.sleep(0.1)


@proves("P1")
@pytest.mark.slow
def test_lost_data_ends_a_query_with_the_reason(spark: SparkSession, filled: tuple[str, str], tmp_path: Path) -> None:
    broker, topic = filled
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 500, "1": 0}}}}'}
    query = (
        stream(spark, broker, **options).writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    )
    with pytest.raises(PySparkException, match=r"\[0\] ends at 40 where the query had read up to 500.*failOnDataLoss"):
        query.awaitTermination(PATIENCE_S)


@proves("P7", "B1")
@pytest.mark.parametrize("aligned", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.slow
def test_a_replay_drops_no_row_when_partitions_catch_up_together(
    spark: SparkSession, tidelog_session_broker: TestBroker, tmp_path: Path, aligned: bool
) -> None:
    """Partition 0 has 40 records in 40 seconds; partition 1 has 60 in the first second, and then as many as 0."""
    broker, topic = tidelog_session_broker.bootstrap, tidelog_session_broker.unique("paces")
    with Cluster(broker) as cluster, Producer(cluster) as producer:
        topics.create(cluster, topic, partitions=2)
        for second in range(40):
            producer.send(topic, b"", partition=0, timestamp=START + second * 1000)
        for number in range(60):
            producer.send(topic, b"", partition=1, timestamp=START + number)
        for second in range(1, 40):
            producer.send(topic, b"", partition=1, timestamp=START + second * 1000)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    options |= {"alignment": "5s", "idleAfter": "0s"} if aligned else {}
    seen = stream(spark, broker, **options).withWatermark("timestamp", "5 seconds")
    counted = seen.groupBy(window("timestamp", "4 seconds")).count()
    query = counted.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    running = query.start()
    assert running.awaitTermination(PATIENCE_S)
    progress = running.recentProgress
    dropped = sum(one.stateOperators[0].numRowsDroppedByWatermark for one in progress if one.stateOperators)
    assert sum(one.numInputRows for one in progress) == 139
    assert (dropped == 0) is aligned


# --- secrets ---------------------------------------------------------------------------------------------------------


@proves("P1", "secrets")
def test_a_secret_in_an_option_is_refused_when_the_frame_is_made(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        batch(spark, "localhost:1", subscribe="t", **{"kafka.sasl.password": SECRET})
    assert "securityFile" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.full
@proves("P1", "secrets")
def test_a_password_stands_in_no_plan_page_event_log_or_checkpoint(
    spark: SparkSession, guarded: tuple[str, Path], tmp_path: Path
) -> None:
    """Neither the source's nor the sink's, and not in what Spark shows of them while they run or keeps of them."""
    broker, properties = guarded
    login = {"securityFile": str(properties), "kafka.security.protocol": "SASL_PLAINTEXT"}
    frame = stream(spark, broker, subscribe="guarded", startingOffsets="earliest", **login)
    given = {"kafka.bootstrap.servers": broker, "topic": "guarded-out", "checkpointLocation": str(tmp_path / "c")}
    write = frame.select("value").writeStream.format("tidelog").queryName("guarded").options(**given, **login)
    query = write.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert sum(one.numInputRows for one in query.recentProgress) == 5
    plans = {"read": frame._jdf.queryExecution().toString(), "query": query._jsq.explainInternal(True)}
    assert "subscribe=guarded" in plans["read"] and "WriteToMicroBatchDataSource tidelog" in plans["query"]
    frame.sparkSession._jsc.sc().listenerBus().waitUntilEmpty()  # what it hears is shown and written by other threads
    pages = shown(spark)
    events = contents(Path(spark.conf.get("spark.eventLog.dir") or ""))
    for place in (pages, events):
        assert any(str(query.id).encode() in text for text in place.values()), "what is looked at has the query"
    kept = contents(tmp_path / "c")
    assert kept
    found = {**pages, **events, **kept, **{name: plan.encode() for name, plan in plans.items()}}
    assert [place for place, text in found.items() if SECRET.encode() in text] == []


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A broker that asks for a login, which is in a file, with a topic to read and one to write."""
    data, properties = tmp_path / "data", tmp_path / "client.properties"
    add = [sys.executable, "-m", "tidelog", "users", "add", "reader", "--data", str(data)]
    subprocess.run(add, input=f"{SECRET}\n", text=True, check=True, capture_output=True)
    properties.write_text(f"sasl.mechanism=SCRAM-SHA-512\nsasl.username=reader\nsasl.password={SECRET}\n")
    with tidelog.Broker(data, listen="SASL_PLAINTEXT://127.0.0.1:0") as broker:
        secured = Security.from_properties(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
            | {"sasl.username": "reader", "sasl.password": SECRET}
        )
        with Cluster(broker.bootstrap, security=secured) as cluster:
            for name in ("guarded", "guarded-out"):
                topics.create(cluster, name, partitions=1)
            fill(cluster, "guarded", 0, numbers(0, 5))
        yield broker.bootstrap, properties


def shown(spark: SparkSession) -> dict[str, bytes]:
    """What Spark's pages and its REST interface say of its queries, its settings and what it has run."""
    context = spark.sparkContext
    rest = f"api/v1/applications/{context.applicationId}"
    paths = [f"{rest}/{part}" for part in ("environment", "jobs", "stages", "allexecutors")]
    paths += [f"{rest}/sql?details=true&planDescription=true&length=100000", "SQL/", "StreamingQuery/", "environment/"]
    found = {path: asked(f"{context.uiWebUrl}/{path}") for path in paths}
    executions = json.loads(asked(f"{context.uiWebUrl}/{rest}/sql?length=100000"))
    last = [f"SQL/execution/?id={one['id']}" for one in executions][-20:]
    return found | {path: asked(f"{context.uiWebUrl}/{path}") for path in last}


def asked(url: str) -> bytes:
    with urlopen(url, timeout=PATIENCE_S) as answer:
        text: bytes = answer.read()
        return text


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@proves("P1")
@pytest.mark.slow
def test_that_the_source_was_found_before_it_was_registered_is_not_warned_of(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    logger = jvm.org.apache.logging.log4j.LogManager.getLogger(manager.getClass().getName())
    before = logger.getLevel().name()
    with unsaid(spark):
        assert not logger.isWarnEnabled() and logger.isErrorEnabled()
    assert logger.getLevel().name() == before
    register(spark)
    assert logger.getLevel().name() == before


@proves("P1")
@pytest.mark.parametrize("by_sql", [True, False])
def test_a_command_tells_an_error_of_a_plan_by_itself_and_pyspark_does_not(spark: SparkSession, by_sql: bool) -> None:
    def written() -> str:
        with pytest.raises(PySparkException, match="nothing"):
            spark.range(1).where("nothing > 1" if by_sql else col("nothing") > 1).count()
        return lines.getvalue()

    lines, loggers = StringIO(), [PySparkLogger.getLogger(name) for name in CONTEXT_LOGGERS]
    handler = StreamHandler(lines)
    for one in loggers:
        one.addHandler(handler)
    try:
        assert "nothing" in written(), "else there is nothing to leave to us"
        lines.truncate(lines.seek(0))
        leave_errors_to_us()
        assert not written()
    finally:
        for one in loggers:
            one.removeHandler(handler)
            one.disabled = False
