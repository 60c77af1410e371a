"""The sink under a real Spark: streams and batches into topics, a checkpoint replayed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StreamingQuery

from client.committed import rows_of
from contract import Broker
from proving import proves
from spark.filling import fill, numbers
from spark.sinking import last_mark
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.control.marks import read_mark, staging_topic_of
from tidelog.errors import BrokerError
from tidelog.record.partitioner import partition_of
from tidelog.spark.foreach_batch import topic_writer
from tidelog.spark.query_log import default_name
from tidelog.spark.staging import INLINE_BYTES

KEYS = 100


@pytest.fixture
def pair(cluster: Cluster, topic: str) -> tuple[str, str]:
    """A topic with numbers in two partitions, and an empty one with three."""
    source, target = f"{topic}-in", f"{topic}-out"
    topics.create(cluster, source, partitions=2)
    topics.create(cluster, target, partitions=3)
    fill(cluster, source, 0, numbers(0, KEYS // 2))
    fill(cluster, source, 1, numbers(KEYS // 2, KEYS))
    return source, target


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def written(cluster: Cluster, topic: str) -> list[bytes]:
    rows = [row for at in cluster.partitions(topic) for row in rows_of(cluster, at)]
    return sorted((row.value or b"" for row in rows), key=int)


def seen(cluster: Cluster, topic: str) -> list[bytes]:
    """What counts by now; what is still open is not waited for."""
    consumer = Consumer(cluster, read_committed=True, max_wait_ms=50)
    consumer.assign(dict.fromkeys(cluster.partitions(topic), 0))
    found: list[bytes] = []
    while fetched := consumer.fetch():
        found += [row.value or b"" for one in fetched for row in one.rows()]
    return found


def writing(rows: DataFrame, bootstrap: str, topic: str, checkpoint: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": checkpoint, **options}
    return rows.writeStream.format("tidelog").options(**given).trigger(availableNow=True)


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format("tidelog").options(**given).load()


def copy(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str, **options: str
) -> StreamingQuery:
    """What there is; `options` are of the read."""
    read = spark.readStream.format("tidelog").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest", **options}
    )
    write = read.load().select("key", "value").writeStream.format("tidelog").queryName(f"copy-{target}")
    write = write.options(**{"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": checkpoint})
    return write.trigger(availableNow=True).start()


@proves("P1", "F2", "eo.5", "eo.7", "eo.11", "T10")
def test_a_stream_from_topic_to_topic_is_written_once(
    spark: SparkSession, broker: Broker, cluster: Cluster, pair: tuple[str, str], checkpoint: str
) -> None:
    """Also when the commit of its last micro-batch is lost, and when it is redone by other tasks."""
    source, target = pair
    copy(spark, broker.bootstrap, *pair, checkpoint, maxOffsetsPerTrigger="40", minPartitions="4").awaitTermination()
    assert written(cluster, target) == numbers(0, KEYS)
    for at in cluster.partitions(target):
        assert {partition_of(row.key or b"", 3) for row in rows_of(cluster, at)} <= {at.partition}
    commits = sorted((Path(checkpoint) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    sink = default_name(target, checkpoint)
    mark = last_mark(cluster, sink)
    assert (mark.batch_id, len(commits)) == (2, 3)
    assert mark.query_id == json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    ends = {
        at: found.offset
        for at, found in list_offsets(cluster, dict.fromkeys(cluster.partitions(source), LATEST)).items()
    }
    assert mark.sources.offsets == ends
    assert {at: one.offset for at, one in groups.committed(cluster, f"tidelog.copy-{target}").items()} == ends
    for lost in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        lost.unlink(missing_ok=True)
    copy(spark, broker.bootstrap, *pair, checkpoint, minPartitions="2").awaitTermination()
    assert written(cluster, target) == numbers(0, KEYS)
    fill(cluster, source, 0, numbers(KEYS, KEYS + 7))
    copy(spark, broker.bootstrap, *pair, checkpoint).awaitTermination()
    assert written(cluster, target) == numbers(0, KEYS + 7)


@proves("P1", "eo.8")
@pytest.mark.parametrize("staging", ["auto", pytest.param("topic", marks=pytest.mark.full)])
@pytest.mark.slow
def test_a_large_micro_batch_is_staged_in_files_or_in_the_topic(
    spark: SparkSession, tidelog_broker: Broker, checkpoint: str, staging: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "in", partitions=2)
        fill(cluster, "in", 0, numbers(0, 10))
        topics.create(cluster, "out", partitions=2)
        each = INLINE_BYTES // 1000
        large = stream(spark, tidelog_broker.bootstrap, "in").select(
            expr(f"explode(sequence(1, {each // 2}))").alias("n"), expr("repeat('x', 1000) as value")
        )
        options = {"sinkName": "large", "staging": staging}
        writing(large, tidelog_broker.bootstrap, "out", checkpoint, **options).start().awaitTermination()
        found = sum(len(rows_of(cluster, at)) for at in cluster.partitions("out"))
        assert found == 10 * (each // 2)
        if staging == "topic":
            ends = list_offsets(cluster, dict.fromkeys(cluster.partitions(staging_topic_of("large")), LATEST))
            assert sum(one.offset for one in ends.values()) > 1
        else:
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
                cluster.topic(staging_topic_of("large"))


@proves("P1", "T10")
@pytest.mark.slow
def test_columns_say_where_a_row_goes_and_what_is_in_it(
    spark: SparkSession, broker: Broker, cluster: Cluster, topic: str
) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        topics.create(cluster, name, partitions=4)
    header = "array(named_struct('key', 'h', 'value', cast('1' as binary)))"
    rows = spark.sql(
        f"select '{topic}-a' topic, 'k' key, 'v' value, 2 partition, {header} headers, 'left out' more"
        f" union all select '{topic}-b', 'k', null, null, null, null"
    )
    rows.write.format("tidelog").option("kafka.bootstrap.servers", broker.bootstrap).mode("append").save()
    (first,) = rows_of(cluster, TopicPartition(f"{topic}-a", 2))
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"),))
    assert abs(first.timestamp / 1000 - time.time()) < 600
    (second,) = rows_of(cluster, TopicPartition(f"{topic}-b", partition_of(b"k", 4)))
    assert (second.key, second.value, second.headers) == (b"k", None, ())


@proves("P1", "F2")
def test_a_batch_write_under_an_id_is_written_once(spark: SparkSession, tidelog_broker: Broker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "out", partitions=2)
        rows = spark.range(KEYS).selectExpr("cast(id as string) value")
        for write_id in ("monday", "monday", "tuesday"):
            options = {"kafka.bootstrap.servers": tidelog_broker.bootstrap, "topic": "out", "writeId": write_id}
            rows.write.format("tidelog").options(**options).mode("append").save()
        assert written(cluster, "out") == sorted(numbers(0, KEYS) * 2, key=int)


@proves("P1", "eo.11")
@pytest.mark.slow
def test_at_least_once_writes_without_marks_and_still_reports(
    spark: SparkSession, tidelog_broker: Broker, checkpoint: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "in", partitions=1)
        fill(cluster, "in", 0, numbers(0, KEYS))
        topics.create(cluster, "out", partitions=3)
        rows = stream(spark, tidelog_broker.bootstrap, "in")
        options = {"deliveryGuarantee": "at-least-once", "sourceGroup": "seen"}
        writing(rows, tidelog_broker.bootstrap, "out", checkpoint, **options).start().awaitTermination()
        assert written(cluster, "out") == numbers(0, KEYS)
        assert [one.offset for one in groups.committed(cluster, "seen").values()] == [KEYS]
        assert read_mark(cluster, default_name("out", checkpoint)) is None


@proves("P1", "eo.1", "eo.5")
@pytest.mark.slow
def test_update_mode_goes_by_foreach_batch_with_the_same_commit(
    spark: SparkSession, tidelog_broker: Broker, checkpoint: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "in", partitions=1)
        topics.create(cluster, "out", partitions=2)
        fill(cluster, "in", 0, numbers(0, 30))
        counts = (
            stream(spark, tidelog_broker.bootstrap, "in", maxOffsetsPerTrigger="15")
            .groupBy(expr("cast(cast(value as string) as int) % 3").alias("rest"))
            .count()
            .selectExpr("cast(rest as string) key", "cast(count as string) value")
        )
        refused = writing(counts, tidelog_broker.bootstrap, "out", f"{checkpoint}-0").outputMode("update")
        with pytest.raises(IllegalArgumentException, match=r"no update mode.*tidelog\.spark\.topic_writer\(TOPIC"):
            refused.start()
        writer = topic_writer("out", bootstrap=tidelog_broker.bootstrap, sink_name="counts")

        def start() -> None:
            query = counts.writeStream.outputMode("update").foreachBatch(writer).queryName("counts")
            query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

        start()
        latest = {row.key: row.value for at in cluster.partitions("out") for row in rows_of(cluster, at)}
        assert latest == {b"0": b"10", b"1": b"10", b"2": b"10"}
        assert len(written(cluster, "out")) == 6
        mark = last_mark(cluster, "counts")
        assert mark.batch_id == 1
        assert [one.offset for one in groups.committed(cluster, "tidelog.counts").values()] == [30]
        for lost in (Path(checkpoint) / "commits").glob("*1*"):
            lost.unlink()
        start()
        assert len(written(cluster, "out")) == 6


@proves("eo.1")
@pytest.mark.full
def test_two_writers_of_one_name_in_a_micro_batch_are_refused(
    spark: SparkSession, tidelog_broker: Broker, checkpoint: str
) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "in", partitions=1)
        fill(cluster, "in", 0, numbers(0, 5))
        for name in ("a", "b"):
            topics.create(cluster, name, partitions=1)

    def run(second_name: str, folder: str) -> None:
        first = topic_writer("a", bootstrap=tidelog_broker.bootstrap, sink_name="one")
        second = topic_writer("b", bootstrap=tidelog_broker.bootstrap, sink_name=second_name)

        def both(rows: DataFrame, batch_id: int) -> None:
            first(rows, batch_id)
            second(rows, batch_id)

        query = stream(spark, tidelog_broker.bootstrap, "in").writeStream.foreachBatch(both)
        query.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="give each topic_writer a sink_name of its own"):
        run("one", checkpoint)
    run("two", checkpoint)
    with Cluster(tidelog_broker.bootstrap) as cluster:
        assert written(cluster, "a") == written(cluster, "b") == numbers(0, 5)


@proves("eo.6")
@pytest.mark.full
def test_a_lost_checkpoint_is_refused_with_the_way_on(
    spark: SparkSession, tidelog_broker: Broker, tmp_path: Path
) -> None:
    """The rule itself is shown without Spark in test_sink_commit.py."""
    bootstrap = tidelog_broker.bootstrap
    with Cluster(bootstrap) as cluster:
        topics.create(cluster, "in", partitions=1)
        topics.create(cluster, "out", partitions=1)
        fill(cluster, "in", 0, numbers(0, 5))
        rows = stream(spark, bootstrap, "in")
        writing(rows, bootstrap, "out", str(tmp_path / "1"), sinkName="s").start().awaitTermination()
        mark = last_mark(cluster, "s")
        with pytest.raises(StreamingQueryException, match=f"takeOverFrom {mark.query_id}"):
            writing(rows, bootstrap, "out", str(tmp_path / "2"), sinkName="s").start().awaitTermination()
        fill(cluster, "in", 0, numbers(5, 9))
        rows = stream(spark, bootstrap, "in", startingOffsets='{"in":{"0":5}}')
        taking = {"sinkName": "s", "takeOverFrom": mark.query_id}
        writing(rows, bootstrap, "out", str(tmp_path / "3"), **taking).start().awaitTermination()
        assert written(cluster, "out") == numbers(0, 9)
