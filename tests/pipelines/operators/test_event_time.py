"""Event time, as declared: what it asks of the source, and that silent and slow inputs neither stall nor drop."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from contract import Broker
from proving import proves
from spark.connector import CONNECTOR, connector_jars
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.producer import Producer
from tidelog.errors import UsageError
from tidelog.pipelines.operators.aggregates import count
from tidelog.pipelines.operators.clocks import corrected_time
from tidelog.pipelines.operators.dedup import deduplicate
from tidelog.pipelines.operators.joins.enrich import enrich
from tidelog.pipelines.operators.time import event_time, event_time_column
from tidelog.pipelines.operators.windows.hopping import hopping
from tidelog.pipelines.operators.windows.tumbling import tumbling
from tidelog.spark import typed
from tidelog.spark.plans import origins, sources
from tidelog.spark.providers import state_store

PATIENCE_S = 500
WEEK_MS = 7 * 24 * 3600 * 1000
START = 1_700_000_000_000
NOWHERE = "127.0.0.1:1"  # nobody asks it anything before a query is started


def stream(spark: SparkSession, bootstrap: str, topic: str, kind: str = "tidelog", **options: str) -> DataFrame:
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").options(**options).load()


def option_of(rows: DataFrame, name: str) -> str | None:
    [source] = sources(rows)
    return source.option(name)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def shift(batches: Any) -> Any:
    yield from batches


# --- the column ------------------------------------------------------------------------------------------------------


@proves("P7", "B1")
@pytest.mark.slow
def test_the_column_is_found_again_in_streams_and_batches_under_any_name(spark: SparkSession, quiet: None) -> None:
    declared = event_time("timestamp", "10 seconds")
    rows = stream(spark, NOWHERE, "t").transform(declared)
    table = spark.createDataFrame([(1,)], "a int").withColumn("timestamp", F.current_timestamp()).transform(declared)
    for frame in (rows, table):
        assert event_time_column(frame) == "timestamp"
        renamed = frame.withColumnRenamed("timestamp", "at").filter("at > current_date()").withColumn("x", F.lit(1))
        assert event_time_column(renamed) == "at"
        with pytest.raises(UsageError, match=r"none of the columns x is known as event time.*event_time\("):
            event_time_column(renamed.select("x"))


@proves("P7")
def test_what_is_no_time_is_refused_where_it_is_declared(spark: SparkSession) -> None:
    rows = stream(spark, NOWHERE, "t").select(F.struct("timestamp").alias("value"), "offset")
    with pytest.raises(UsageError, match="column 'offset' is bigint, and event time is a timestamp"):
        rows.transform(event_time("offset", "1 second"))
    with pytest.raises(UsageError, match=r"column 'value.timestamp' does not exist.*withColumn\('timestamp'"):
        rows.transform(event_time("value.timestamp", "1 second"))
    with pytest.raises(UsageError, match="watermark_delay is 'soon', which is not a duration"):
        event_time("at", "soon")


@proves("P7")
def test_two_event_times_are_one_too_many(spark: SparkSession) -> None:
    def side(name: str) -> DataFrame:
        rows = stream(spark, NOWHERE, name).transform(event_time("timestamp", "1 second"))
        return rows.select(F.col("timestamp").alias(f"{name}_at"), F.col("key").alias(f"{name}_key"))

    both = side("left").join(side("right"), F.expr("left_key = right_key"))
    with pytest.raises(UsageError, match="left_at and right_at are both event time"):
        event_time_column(both)
    assert event_time_column(both.drop("right_at")) == "left_at"


# --- what it asks of the source --------------------------------------------------------------------------------------


@proves("P7")
@pytest.mark.slow
def test_partitions_are_held_together_closer_than_the_lateness(spark: SparkSession, quiet: None) -> None:
    rows = stream(spark, NOWHERE, "t")
    assert option_of(rows.transform(event_time("timestamp", "10 seconds")), "alignment") == "5000ms"
    renamed = rows.selectExpr("timestamp as t", "value").filter("t is not null")
    passed = renamed.mapInArrow(shift, renamed.schema)
    assert option_of(passed.transform(event_time("t", "10 seconds")), "alignment") == "5000ms"
    own = stream(spark, NOWHERE, "t", alignment="2s").transform(event_time("timestamp", "10 seconds"))
    assert option_of(own, "alignment") == "2s"
    assert own.columns == rows.columns


@proves("P7")
def test_a_time_that_is_not_the_records_own_warns_unless_its_field_is_named(spark: SparkSession) -> None:
    rows = stream(spark, NOWHERE, "t").withColumn("at", F.get_json_object(F.col("value").cast("string"), "$.at"))
    rows = rows.withColumn("at", F.col("at").cast("timestamp"))
    with pytest.warns(UserWarning, match=r"a replay may drop rows.*'at' is not the timestamp.*align_by.*alignBy"):
        rows.transform(event_time("at", "10 seconds"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        named = rows.transform(event_time("at", "10 seconds", align_by="at"))
        assert (option_of(named, "alignBy"), option_of(named, "alignment")) == ("at", "5000ms")
        own = stream(spark, NOWHERE, "t", alignBy="at").withColumn("at", F.current_timestamp())
        assert option_of(own.transform(event_time("at", "10 seconds")), "alignment") == "5000ms"


@proves("P7")
def test_a_corrected_time_is_aligned_by_the_records_own_and_not_by_the_clock_that_is_wrong(spark: SparkSession) -> None:
    rows = stream(spark, NOWHERE, "t")
    for name in ("occurred", "sent"):
        said = F.get_json_object(F.col("value").cast("string"), f"$.{name}")
        rows = rows.withColumn(name, said.cast("timestamp"))
    rows = rows.withColumn("at", corrected_time("occurred", "sent", "timestamp"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        timed = rows.transform(event_time("at", "10 seconds"))
    assert (option_of(timed, "alignBy"), option_of(timed, "alignment")) == (None, "5000ms")


@proves("P7")
def test_deduplicate_before_windows_that_correct_is_warned_of(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    rows = stream(spark, NOWHERE, "t").transform(event_time("timestamp", "10 seconds"))
    how = {"by": "key", "aggregates": {"rows": count()}}
    once = rows.transform(deduplicate("key"))
    once.transform(tumbling("1 minute", **how))
    rows.transform(tumbling("1 minute", **how, late="correct", allowed_lateness="1 hour"))
    assert caplog.messages == [], "none takes more than is let through"
    once.transform(tumbling("1 minute", **how, late="correct", allowed_lateness="1 hour"))
    (said,) = caplog.messages
    assert "deduplicate drops rows that are behind the watermark" in said and "for 3600 s more" in said


@proves("P7")
def test_inputs_that_are_united_before_their_time_is_declared_warn(spark: SparkSession) -> None:
    both = stream(spark, NOWHERE, "a").union(stream(spark, NOWHERE, "b"))
    with pytest.warns(UserWarning, match="2 inputs have one watermark together.*on each before they meet"):
        united = both.transform(event_time("timestamp", "10 seconds"))
    assert [source.option("alignment") for source in sources(united)] == ["5000ms", "5000ms"]


@pytest.mark.external
@proves("P7")
def test_sparks_own_connector_warns_that_it_does_not_align(spark: SparkSession) -> None:
    connector_jars()
    with pytest.warns(UserWarning, match="own Kafka connector does not align"):
        stream(spark, NOWHERE, "t", CONNECTOR).transform(event_time("timestamp", "10 seconds"))


@proves("P7")
def test_a_column_is_followed_to_the_source_it_comes_from(spark: SparkSession) -> None:
    left = stream(spark, NOWHERE, "a").selectExpr("key as k", "timestamp as l", "offset + 1 as next")
    right = stream(spark, NOWHERE, "b").selectExpr("key as k2", "timestamp as r").withWatermark("r", "1 second")
    found = origins(left.join(right, F.expr("k = k2")).union(left.join(right, F.expr("k = k2"))))
    named = {name: [(one.source.option("subscribe"), one.column) for one in those] for name, those in found.items()}
    assert named["l"] == [("a", "timestamp")] * 2
    assert named["r"] == [("b", "timestamp")] * 2
    assert named["next"] == []


# --- ticks: what Spark makes of them ----------------------------------------------------------------------------------


@proves("P7")
@pytest.mark.slow
def test_ticks_are_taken_out_above_the_watermark_and_a_filter_by_offset_alone_would_be_pushed_below(
    spark: SparkSession,
) -> None:
    def order(rows: DataFrame) -> list[str]:
        optimizer = spark._jsparkSession.sessionState().optimizer()
        plan = optimizer.execute(rows._jdf.queryExecution().analyzed()).toString()
        return re.findall(r"~(Filter|EventTimeWatermark)", plan)

    rows = stream(spark, NOWHERE, "t")
    assert order(rows.transform(event_time("timestamp", "1 second", "1 second"))) == ["Filter", "EventTimeWatermark"]
    assert order(rows.withWatermark("timestamp", "1 second").filter("offset != -1")) == ["EventTimeWatermark", "Filter"]
    # What is filtered later stays above as well: a tick has no key and no value.
    later = rows.transform(event_time("timestamp", "1 second", "1 second")).filter("value IS NOT NULL AND key = 'k'")
    assert order(later)[-1] == "EventTimeWatermark"
    assert order(later.join(later.select("key"), "key"))[-1] == "EventTimeWatermark"
    # Also where Spark knows that the time is never null.
    sure = rows.withColumn("at", F.coalesce("timestamp", F.current_timestamp()))
    declared = sure.transform(event_time("at", "1 second", "1 second", align_by="at"))
    assert order(declared)[:2] == ["Filter", "EventTimeWatermark"]


@proves("P7")
def test_ticks_need_the_columns_by_which_they_are_known(spark: SparkSession) -> None:
    rows = stream(spark, NOWHERE, "t").select("timestamp", "value")
    assert option_of(rows.transform(event_time("timestamp", "1 second")), "ticks") is None
    with pytest.raises(UsageError, match=r"needs the source's column offset.*before those columns are left out"):
        rows.transform(event_time("timestamp", "1 second", "1 second"))


# --- running ---------------------------------------------------------------------------------------------------------


class Running:
    """Queries into memory, stopped at the end of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queries: list[StreamingQuery] = []

    def start(self, rows: DataFrame, name: str) -> StreamingQuery:
        where = str(self.folder / name)
        writer = rows.writeStream.format("memory").queryName(name).option("checkpointLocation", where)
        with state_store(rows):
            self.queries.append(writer.start())
        return self.queries[-1]

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            for query in self.queries:
                if (error := query.exception()) is not None:
                    raise error
            assert time.monotonic() < deadline, [query.lastProgress for query in self.queries]
            time.sleep(0.1)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    for query in made.queries:
        query.stop()


def send(cluster: Cluster, topic: str, times: list[int], partition: int = 0, value: bytes = b"1") -> None:
    with Producer(cluster) as producer:
        for at in times:
            producer.send(topic, value, key=b"k", partition=partition, timestamp=at)


def now_ms() -> int:
    return int(time.time() * 1000)


@proves("P7", "B1")
@pytest.mark.slow
def test_two_partitions_a_week_apart_drop_nothing_in_a_replay(
    spark: SparkSession, broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    """The first partition is a week behind, has as much to say, and several records at each time."""
    topic = f"weeks-{time.time_ns()}"
    topics.create(cluster, topic, partitions=2)
    hours = [START + hour * 3_600_000 for hour in range(20) for _ in range(3)]
    send(cluster, topic, hours, 0)
    send(cluster, topic, [at + WEEK_MS for at in hours], 1)
    rows = stream(spark, broker.bootstrap, topic, maxOffsetsPerTrigger="50")
    declared = rows.transform(event_time("timestamp", "4 hours"))
    counted = declared.groupBy(F.window("timestamp", "1 hour")).count()
    writer = counted.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    progress = query.recentProgress
    assert sum(one.numInputRows for one in progress) == 2 * len(hours)
    assert sum(one.stateOperators[0].numRowsDroppedByWatermark for one in progress if one.stateOperators) == 0


@proves("P7")
@pytest.mark.slow
def test_a_window_closes_while_its_input_is_silent_and_no_tick_is_counted(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, running: Running
) -> None:
    schema = StructType([StructField("user", StringType())])
    send(cluster, topic, [now_ms()], value=b'{"user": "ada"}')
    rows = stream(spark, broker.bootstrap, topic).transform(typed(schema))
    rows = rows.select("offset", "timestamp", F.col("value.user").alias("user"))
    declared = rows.transform(event_time("timestamp", "0 seconds", "1 second"))
    counted = declared.groupBy(F.window("timestamp", "2 seconds"), "user").count()
    running.start(counted, "closed")
    running.wait(lambda: spark.table("closed").count() > 0)
    assert [(row["user"], row["count"]) for row in spark.table("closed").collect()] == [("ada", 1)]


@pytest.mark.full
@proves("P7")
def test_ticks_carry_the_time_where_event_time_is_a_field(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, running: Running
) -> None:
    at = now_ms()
    send(cluster, topic, [at], value=json.dumps({"at": at}).encode())
    rows = stream(spark, broker.bootstrap, topic)
    rows = rows.withColumn(
        "at", F.timestamp_millis(F.get_json_object(F.col("value").cast("string"), "$.at").cast("long"))
    )
    declared = rows.transform(event_time("at", "0 seconds", "1 second", align_by="at"))
    running.start(declared.groupBy(F.window("at", "2 seconds")).count(), "fields")
    running.wait(lambda: spark.table("fields").count() > 0)
    assert [row["count"] for row in spark.table("fields").collect()] == [1]


@pytest.mark.full
@proves("P7")
def test_a_join_of_streams_goes_on_while_one_of_them_is_silent_or_has_never_had_a_row(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, running: Running
) -> None:
    """Outer results come when the watermark of both has passed them."""
    silent = f"{topic}-silent"
    for name in (topic, silent):
        topics.create(cluster, name, partitions=1)

    def side(name: str, prefix: str) -> DataFrame:
        rows = stream(spark, broker.bootstrap, name).transform(event_time("timestamp", "0 seconds", "1 second"))
        return rows.selectExpr(f"key as {prefix}_key", f"timestamp as {prefix}_at")

    matches = F.expr("l_key = r_key AND r_at BETWEEN l_at AND l_at + INTERVAL 1 SECOND")
    joined = side(topic, "l").join(side(silent, "r"), matches, "left_outer")
    running.start(joined, "joined")
    send(cluster, topic, [now_ms()])
    running.wait(lambda: spark.table("joined").count() > 0)
    assert [(bytes(row.l_key), row.r_key) for row in spark.table("joined").collect()] == [(b"k", None)]


@pytest.mark.full
@proves("P7", "P9")
def test_a_silent_table_does_not_hold_up_the_rows_that_are_joined_with_it(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, running: Running
) -> None:
    table = f"{topic}-table"
    for name in (topic, table):
        topics.create(cluster, name, partitions=1)
    at = now_ms()
    send(cluster, table, [at - 60_000], value=b"7 percent")
    send(cluster, topic, [at], value=b"tea")

    def side(name: str, value: str, time: str) -> DataFrame:
        rows = stream(spark, broker.bootstrap, name).transform(event_time("timestamp", "0 seconds", "1 second"))
        return rows.selectExpr("cast(key as string) as k", f"cast(value as string) as {value}", f"timestamp as {time}")

    rates = side(table, "rate", "since")
    running.start(side(topic, "sold", "at").transform(enrich(rates, on="k", horizon="1 hour")), "enriched")
    running.wait(lambda: spark.table("enriched").count() > 0)
    assert [(row.sold, row.rate) for row in spark.table("enriched").collect()] == [("tea", "7 percent")]


@pytest.mark.full
@proves("P7", "P8")
def test_a_report_goes_on_by_the_clock_when_its_input_is_silent(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, running: Running
) -> None:
    """The row leaves the windows; those without it come all the same, also of a key that never had one."""
    send(cluster, topic, [now_ms()])
    rows = stream(spark, broker.bootstrap, topic).transform(event_time("timestamp", "0 seconds", "1 second"))
    keyed = rows.selectExpr("cast(key as string) as k", "timestamp")
    every = {"by": "k", "aggregates": {"n": count()}, "emit": "always", "keys": ["k", "never"]}
    running.start(keyed.transform(hopping("2 seconds", every="1 second", **every)), "reports")
    running.wait(lambda: spark.table("reports").where("n = 0 and k = 'k'").count() > 0)
    found = {(row.k, row.n) for row in spark.table("reports").collect()}
    assert found == {("k", 1), ("k", 0), ("never", 0)}


@pytest.mark.external
@proves("P7", "F1", "T10")
def test_a_checkpoint_that_ends_with_a_tick_continues_under_sparks_own_connector_and_back(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    connector_jars()

    def run(kind: str, done: Callable[[StreamingQuery], bool], **options: str) -> None:
        rows = stream(spark, broker.bootstrap, topic, kind, **options).selectExpr(
            "cast(value as string) as v", "offset"
        )
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "table"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        while not done(query):
            assert (error := query.exception()) is None, error
            time.sleep(0.1)
        query.stop()

    def has_read(values: set[str]) -> Callable[[StreamingQuery], bool]:
        def done(_: StreamingQuery) -> bool:
            if not (tmp_path / "table" / "_spark_metadata").exists():
                return False
            rows = spark.read.schema("v string, offset long").parquet(str(tmp_path / "table"))
            return {row.v for row in rows.filter("offset >= 0").collect()} == values

        return done

    def has_ticked(_: StreamingQuery) -> bool:
        logs = [path for path in (tmp_path / "checkpoint" / "offsets").glob("*") if path.name.isdigit()]
        return bool(logs) and "tick:" in max(logs, key=lambda path: int(path.name)).read_text()

    send(cluster, topic, [now_ms()], value=b"1")
    run("tidelog", has_ticked, ticks="true", idleAfter="1s")
    send(cluster, topic, [now_ms()], value=b"2")
    run(CONNECTOR, has_read({"1", "2"}))
    send(cluster, topic, [now_ms()], value=b"3")
    run("tidelog", has_read({"1", "2", "3"}), ticks="true", idleAfter="1s")
