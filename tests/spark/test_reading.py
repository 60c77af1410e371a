"""The source driven as Spark drives it, without a session: on Tidelog and on Apache Kafka alike."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from contract import Broker
from proving import proves
from spark.filling import Query, fill, numbers, reader, rows_of, source
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.errors import BrokerError, DataLoss, UsageError
from tidelog.record.columns import encode
from tidelog.spark.arrow_rows import COLUMNS, WITH_HEADERS, arrow_schema

EARLIEST = {"startingOffsets": "earliest"}


@proves("P1")
@pytest.mark.parametrize(("headers", "columns"), [("false", COLUMNS), ("true", WITH_HEADERS)])
def test_the_arrow_schema_is_the_one_that_spark_makes_of_ours(headers: str, columns: tuple[str, ...]) -> None:
    _, schema = source("localhost:9092", includeHeaders=headers)
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(columns))


@proves("P1", "T10")
@pytest.mark.story
def test_a_record_has_the_columns_of_the_connector(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    with Producer(cluster) as producer:
        producer.send(topic, b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
        producer.send(topic, None, timestamp=5)
    read = reader(broker.bootstrap, subscribe=topic, includeHeaders="true")
    (partition,) = read.partitions()
    first, second = rows_of(read.read(partition))
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)


@proves("P1", "T10")
def test_append_time_is_said(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    fill(cluster, topic, 0, numbers(0, 3), timestamp=5)
    read = reader(broker.bootstrap, subscribe=topic)
    rows = rows_of(read.read(read.partitions()[0]))
    assert {row["timestampType"] for row in rows} == {1}
    assert all(row["timestamp"].year > 2000 for row in rows)


@proves("P1", "T10")
def test_a_batch_read_has_what_lies_between_its_boundaries(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    fill(cluster, topic, 0, numbers(0, 100))
    fill(cluster, topic, 1, numbers(100, 150))
    between = {
        "startingOffsets": f'{{"{topic}": {{"0": 10, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 90, "1": -1}}}}',
    }
    read = reader(broker.bootstrap, subscribe=topic, minPartitions="6", **between)
    partitions = read.partitions()
    assert len(partitions) in range(5, 8)
    values = [row["value"] for partition in partitions for row in rows_of(read.read(partition))]
    assert sorted(values, key=int) == numbers(10, 90) + numbers(100, 150)


@proves("P1", "T10")
def test_boundaries_by_time(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    for second in range(10):
        fill(cluster, topic, 0, numbers(second, second + 1), timestamp=1_700_000_000_000 + second * 1000)
    times = {"startingTimestamp": "1700000002500", "endingTimestamp": "1700000007000"}
    read = reader(broker.bootstrap, subscribe=topic, **times)
    assert [row["value"] for row in rows_of(read.read(read.partitions()[0]))] == numbers(3, 7)
    late = {"startingTimestamp": "1800000000000"}
    with pytest.raises(UsageError, match="as young as 1800000000000"):
        reader(broker.bootstrap, subscribe=topic, **late).partitions()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reader(broker.bootstrap, subscribe=topic, **late, **strategy).partitions() == []


@proves("P1", "T10")
def test_topics_by_pattern_and_partitions_by_number(broker: Broker, cluster: Cluster, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"other-{topic}"):
        topics.create(cluster, name, partitions=2)
        fill(cluster, name, 1, [name.encode()])
    read = reader(broker.bootstrap, subscribePattern=f"^{topic}-[ab]$")
    found = {row["topic"] for partition in read.partitions() for row in rows_of(read.read(partition))}
    assert found == {f"{topic}-a", f"{topic}-b"}
    assigned = reader(broker.bootstrap, assign=f'{{"{topic}-a": [0]}}')
    assert assigned.partitions() == []


@proves("P1")
def test_a_topic_that_is_not_there_is_said(tidelog_broker: Broker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "something", partitions=1)
    with pytest.raises(UsageError, match=r"^topic nothing is not there to read"):
        reader(tidelog_broker.bootstrap, subscribe="nothing,something").partitions()
    with pytest.raises(UsageError, match=r"^something\[1\] is not there to read"):
        reader(tidelog_broker.bootstrap, assign='{"something": [0, 1]}').partitions()
    with pytest.raises(UsageError, match="topic nothing"):
        Query(tidelog_broker.bootstrap, subscribe="nothing")
    assert Query(tidelog_broker.bootstrap, subscribePattern="nothing").offsets == {}


@proves("P1", "B1", "T10")
def test_a_query_goes_on_in_micro_batches_from_where_it_was(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=2)
    fill(cluster, topic, 0, numbers(0, 30))
    fill(cluster, topic, 1, numbers(0, 10))
    query = Query(broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger="20", **EARLIEST)
    assert [query.trigger(), query.trigger(), query.trigger()] == [20, 20, 0]
    before = query.offsets
    assert before == {topic: {"0": 30, "1": 10}}
    query.stop()
    fill(cluster, topic, 0, numbers(30, 35))
    again = Query(broker.bootstrap, before, subscribe=topic)
    assert again.trigger() == 5
    assert query.values(0) + again.values(0) == numbers(0, 35)
    assert again.stream.reportLatestOffset() == {topic: {"0": 35, "1": 10}}
    again.stop()


@proves("P1")
def test_where_a_query_began_stays_though_the_topic_grows(tidelog_broker: Broker, topic: str) -> None:
    """Spark asks for it again until its first micro-batch is committed."""
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        query = Query(tidelog_broker.bootstrap, subscribe=topic, startingOffsets="latest")
        fill(cluster, topic, 0, numbers(0, 7))
    assert query.stream.initialOffset() == {topic: {"0": 0}}
    assert query.trigger() == 7
    query.stop()


@proves("P1")
def test_when_nothing_is_new_spark_gets_back_what_it_gave(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=11)
    as_the_connector_orders = {topic: {str(n): 0 for n in (7, 10, 2, 1, 0, 3, 4, 5, 6, 8, 9)}}
    query = Query(tidelog_broker.bootstrap, as_the_connector_orders, subscribe=topic)
    end = query.stream.latestOffset(as_the_connector_orders, ReadMaxRows(5))
    assert list(end[topic]) == list(as_the_connector_orders[topic])
    query.stop()


@proves("P1", "T10")
def test_a_new_partition_is_read_from_its_beginning(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 3))
    query = Query(broker.bootstrap, subscribe=topic, **EARLIEST)
    assert query.trigger() == 3
    topics.add_partitions(cluster, topic, 2)
    cluster.forget()
    fill(cluster, topic, 1, numbers(0, 4))
    assert query.trigger() == 4
    assert query.values(1) == numbers(0, 4)
    query.stop()


@proves("P1")
def test_all_that_is_available_is_what_it_says(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        fill(cluster, topic, 0, numbers(0, 50))
    query = Query(tidelog_broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger="7", **EARLIEST)
    assert query.trigger(ReadAllAvailable()) == 50
    query.stop()


@proves("P1")
def test_available_now_ends_where_the_topic_ended_at_first(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        fill(cluster, topic, 0, numbers(0, 10))
        query = Query(tidelog_broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger="6", **EARLIEST)
        query.stream.prepareForTriggerAvailableNow()
        assert query.trigger() == 6
        fill(cluster, topic, 0, numbers(10, 20))
        assert [query.trigger(), query.trigger()] == [4, 0]
        query.stop()


@proves("P1")
def test_a_micro_batch_waits_for_enough_or_for_long_enough(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "10m"}
        query = Query(tidelog_broker.bootstrap, subscribe=topic, **limits, **EARLIEST)
        fill(cluster, topic, 0, numbers(0, 3))
        assert query.trigger() == 3, "the first is not held back, as in the connector"
        fill(cluster, topic, 0, numbers(3, 9))
        assert query.trigger() == 0
        fill(cluster, topic, 0, numbers(9, 13))
        assert query.trigger() == 10
        query.stop()


@proves("P1", "T7", "T10")
def test_offsets_are_reported_as_a_group_that_was_named(
    broker: Broker, cluster: Cluster, topic: str, group: str
) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 9))
    query = Query(broker.bootstrap, subscribe=topic, **EARLIEST, **{"kafka.group.id": group})
    query.trigger()
    query.stop()
    assert groups.committed(cluster, group)[TopicPartition(topic, 0)].offset == 9


# --- offsets without records -----------------------------------------------------------------------------------------


@proves("P1", "F2", "T10")
@pytest.mark.parametrize(("isolation", "seen"), [("read_committed", [b"a", b"d"]), ("read_uncommitted", list(b"abcd"))])
def test_a_range_of_markers_and_aborted_records_is_done_at_its_end(
    broker: Broker, cluster: Cluster, topic: str, isolation: str, seen: list[bytes]
) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    fill(cluster, topic, 0, [b"a"])
    with Transactions(cluster, f"tx-{topic}") as transactions:
        transactions.begin()
        transactions.produce(at, encode([(None, b"b", (), 0), (None, b"c", (), 0)]))
        transactions.abort()
        transactions.begin()
        transactions.produce(at, encode([(None, b"d", (), 0)]))
        transactions.commit()
    query = Query(
        broker.bootstrap, subscribe=topic, maxOffsetsPerTrigger="1", **EARLIEST, **{"kafka.isolation.level": isolation}
    )
    while query.trigger() or query.offsets[topic]["0"] < 6:
        pass
    assert query.values() == [bytes([one]) if isinstance(one, int) else one for one in seen]
    query.stop()


@proves("P1", "F2", "T10")
def test_under_read_committed_an_open_transaction_is_an_end(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    fill(cluster, topic, 0, [b"a"])
    committed = {"kafka.isolation.level": "read_committed"}
    with Transactions(cluster, f"tx-{topic}") as transactions:
        transactions.begin()
        transactions.produce(at, encode([(None, b"b", (), 0)]))
        transactions.producer.flush()
        query = Query(broker.bootstrap, subscribe=topic, **EARLIEST, **committed)
        assert query.trigger() == 1
        transactions.commit()
    deadline = time.monotonic() + 60
    while query.trigger() == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert query.values() == [b"a", b"b"]
    query.stop()


@proves("P1", "T8")
@pytest.mark.tidelog(settings={"log.cleaner.backoff.ms": "50", "log.retention.check.interval.ms": "200"})
def test_a_range_whose_end_was_compacted_away_is_done_all_the_same(tidelog_broker: Broker, topic: str) -> None:
    quick = {"cleanup.policy": "compact", "max.compaction.lag.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1, configs=quick)
        for start in range(0, 100, 10):
            with Producer(cluster) as producer:
                for number in range(start, start + 10):
                    producer.send(topic, b"%d" % number, key=b"one of them")
    everything = reader(tidelog_broker.bootstrap, subscribe=topic)
    (whole,) = everything.partitions()
    deadline = time.monotonic() + 120
    while len(left := [row["offset"] for row in rows_of(everything.read(whole))]) > 10:
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.1)
    assert max(left) == 99
    pieces = reader(tidelog_broker.bootstrap, subscribe=topic, minPartitions="10")
    ranges = pieces.partitions()
    assert len(ranges) == 10
    assert [row["offset"] for one in ranges for row in rows_of(pieces.read(one))] == left


# --- offsets that are gone -------------------------------------------------------------------------------------------


@proves("P1", "T10")
def test_deleted_records_are_data_loss_or_skipped(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 20))
    strict = Query(broker.bootstrap, subscribe=topic, **EARLIEST)
    lenient = Query(broker.bootstrap, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    topics.delete_records(cluster, {TopicPartition(topic, 0): 12})
    with pytest.raises(DataLoss, match=r"from 0 up to 20 and now has 12 up to 20; .*failOnDataLoss"):
        strict.trigger()
    assert lenient.trigger() == 8
    assert lenient.values() == numbers(12, 20)
    strict.stop()
    lenient.stop()


@proves("P1", "T10")
def test_a_topic_made_anew_is_data_loss_or_read_on(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 20))
    strict = Query(broker.bootstrap, subscribe=topic, **EARLIEST)
    lenient = Query(broker.bootstrap, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    assert (strict.trigger(), lenient.trigger()) == (20, 20)
    topics.delete(cluster, topic)
    _create_again(cluster, topic)
    fill(cluster, topic, 0, numbers(100, 105))
    with pytest.raises(DataLoss, match="created again"):
        strict.trigger()
    lenient.trigger()
    fill(cluster, topic, 0, numbers(105, 108))
    lenient.trigger()
    assert lenient.values()[-8:] == numbers(100, 108)
    strict.stop()
    lenient.stop()


@proves("P1", "T10")
def test_a_topic_made_anew_and_filled_beyond_is_known_by_its_id(broker: Broker, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 5))
    strict = Query(broker.bootstrap, subscribe=topic, **EARLIEST)
    lenient = Query(broker.bootstrap, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    assert (strict.trigger(), lenient.trigger()) == (5, 5)
    topics.delete(cluster, topic)
    _create_again(cluster, topic)
    fill(cluster, topic, 0, numbers(100, 105))
    with pytest.raises(DataLoss, match="created again"):
        strict.trigger()
    assert lenient.trigger() == 0, "its offsets are those of before: there is nothing that Spark would call new"
    fill(cluster, topic, 0, numbers(105, 120))
    assert lenient.trigger() == 20
    assert lenient.values()[5:] == numbers(100, 120)
    assert lenient.trigger() == 0
    strict.stop()
    lenient.stop()


@proves("P1", "T10")
def test_a_topic_made_anew_that_is_read_to_the_old_end_step_by_step_is_read_once(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    topics.create(cluster, topic, partitions=1)
    fill(cluster, topic, 0, numbers(0, 10))
    query = Query(broker.bootstrap, subscribe=topic, failOnDataLoss="false", **EARLIEST)
    assert query.trigger() == 10
    topics.delete(cluster, topic)
    _create_again(cluster, topic)
    read = 0
    for upto in (6, 10, 11):
        fill(cluster, topic, 0, numbers(100 + read, 100 + upto))
        assert query.trigger() == upto - read
        read = upto
    assert query.values()[10:] == numbers(100, 111)
    query.stop()


@proves("P1", "T10")
def test_topics_of_our_own_match_no_pattern(broker: Broker, cluster: Cluster, topic: str) -> None:
    for name in (topic, f"__tidelog.marks.{topic}"):
        topics.create(cluster, name, partitions=1)
        fill(cluster, name, 0, numbers(0, 3))
    query = Query(broker.bootstrap, subscribePattern=topic, **EARLIEST)
    assert query.trigger() == 3
    query.stop()


@proves("P1", "T10")
def test_a_deleted_topic_is_data_loss_or_left_out(broker: Broker, cluster: Cluster, topic: str) -> None:
    for name in (topic, f"{topic}-gone"):
        topics.create(cluster, name, partitions=1)
        fill(cluster, name, 0, numbers(0, 3))
    both = f"{topic},{topic}-gone"
    strict = Query(broker.bootstrap, subscribe=both, **EARLIEST)
    lenient = Query(broker.bootstrap, subscribe=both, failOnDataLoss="false", **EARLIEST)
    assert (strict.trigger(), lenient.trigger()) == (6, 6)
    topics.delete(cluster, f"{topic}-gone")
    fill(cluster, topic, 0, numbers(3, 5))
    with pytest.raises(DataLoss, match=rf"{topic}-gone\[0\] is gone"):
        strict.trigger()
    assert lenient.trigger() == 2
    assert lenient.offsets == {topic: {"0": 5}}
    strict.stop()
    lenient.stop()


def _create_again(cluster: Cluster, topic: str) -> None:
    """Apache Kafka deletes in its own time."""
    deadline = time.monotonic() + 60
    while True:
        try:
            topics.create(cluster, topic, partitions=1)
            cluster.forget()
            return
        except BrokerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# --- together in time ------------------------------------------------------------------------------------------------

T = 1_700_000_000_000


def _two_paces(cluster: Cluster, topic: str) -> None:
    """Partition 0 has a record a second, partition 1 one in ten: by offsets alone they would drift apart."""
    topics.create(cluster, topic, partitions=2)
    with Producer(cluster) as producer:
        for second in range(100):
            at = T + second * 1000
            producer.send(topic, b'{"at": %d}' % at, partition=0, timestamp=at)
            producer.flush()
            if second % 10 == 0:
                producer.send(topic, b'{"at": %d}' % at, partition=1, timestamp=at)
                producer.flush()


@proves("P7", "T10")
@pytest.mark.parametrize("align_by", ["timestamp", "at"])
def test_partitions_catch_up_together(broker: Broker, cluster: Cluster, topic: str, align_by: str) -> None:
    _two_paces(cluster, topic)
    paced = {"maxOffsetsPerTrigger": "20", "alignment": "5s", "alignBy": align_by, "idleAfter": "0s"}
    query = Query(broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    seen_up_to = 0
    for _ in range(200):
        before = len(query.rows)
        if not query.trigger():
            break
        times = [int(row["timestamp"].timestamp() * 1000) for row in query.rows[before:]]
        assert min(times) >= seen_up_to - 5000, "a row came later than the lateness allows"
        seen_up_to = max(seen_up_to, *times)
    assert len(query.rows) == 110
    query.stop()


@proves("P7", "T10")
def test_a_replay_takes_what_its_limit_allows_however_short_the_lateness_is(
    broker: Broker, cluster: Cluster, topic: str
) -> None:
    """A hundred seconds in two partitions, and a second of lateness: not a hundred micro-batches."""
    _two_paces(cluster, topic)
    paced = {"maxOffsetsPerTrigger": "22", "alignment": "1s"}
    query = Query(broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    query.stream.prepareForTriggerAvailableNow()
    triggers, watermark = 0, 0
    while (before := len(query.rows)) < 110:
        assert query.trigger()
        triggers += 1
        times = [int(row["timestamp"].timestamp() * 1000) for row in query.rows[before:]]
        assert min(times) > watermark, "a row came late"
        watermark = max(watermark, max(times) - 1001)
    assert triggers <= 8
    query.stop()


@proves("P7")
def test_without_a_limit_partitions_are_held_together_all_the_same(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        _two_paces(cluster, topic)
    paced = {"maxOffsetsPerTrigger": "unlimited", "alignment": "5s", "idleAfter": "1h"}
    query = Query(tidelog_broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    assert 0 < query.trigger() < 110
    assert query.trigger(ReadAllAvailable()) > 0
    assert len(query.rows) == 110, "a last trigger takes all there is"
    query.stop()


@proves("P7")
def test_an_early_bird_that_was_read_already_stops_nobody(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=2)
        fill(cluster, topic, 0, [b"early bird"], timestamp=T + 3_600_000)
        for second in range(10):
            for partition in (0, 1):
                fill(cluster, topic, partition, [b"%d" % second], timestamp=T + second * 1000)
    paced = {"alignment": "2s", "idleAfter": "0s"}
    query = Query(tidelog_broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    for _ in range(30):
        query.trigger()
    assert len(query.rows) == 21
    query.stop()


@proves("P7", "T10")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_ends_of_transactions_have_the_clocks_time_and_stop_nobody(
    broker: Broker, cluster: Cluster, topic: str, isolation: str
) -> None:
    topics.create(cluster, topic, partitions=2)
    with Transactions(cluster, f"tx-{topic}") as transactions:
        for second in range(12):
            transactions.begin()
            for partition in (0, 1):
                row = (None, b"%d" % second, (), T + second * 1000)
                transactions.produce(TopicPartition(topic, partition), encode([row, row]))
            transactions.commit()
    paced = {"alignment": "3s", "idleAfter": "0s", "kafka.isolation.level": isolation}
    query = Query(broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    deadline = time.monotonic() + 60
    triggers = 0
    while len(query.rows) < 48 and time.monotonic() < deadline:
        triggers += query.trigger() > 0
    assert len(query.rows) == 48
    assert triggers < 12, "a micro-batch for each transaction"
    query.stop()


@proves("P7")
def test_a_partition_that_is_alone_waits_for_nobody(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=1)
        for minute in range(3):
            fill(cluster, topic, 0, [b"%d" % minute], timestamp=T + minute * 60_000)
    query = Query(tidelog_broker.bootstrap, subscribe=topic, alignment="1s", idleAfter="1h", **EARLIEST)
    assert query.trigger() == 3
    query.stop()


@proves("P7")
def test_a_partition_at_its_end_holds_the_others_until_it_is_idle(tidelog_broker: Broker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, topic, partitions=2)
        fill(cluster, topic, 0, [b"old"], timestamp=T)
        fill(cluster, topic, 1, [b"old", b"young"], timestamp=T)
        fill(cluster, topic, 1, [b"younger"], timestamp=T + 60_000)
    paced = {"alignment": "5s", "idleAfter": "1h"}
    query = Query(tidelog_broker.bootstrap, subscribe=topic, **paced, **EARLIEST)
    assert [query.trigger(), query.trigger(), query.trigger()] == [3, 0, 0]
    bound = Query(tidelog_broker.bootstrap, query.offsets, subscribe=topic, **paced)
    bound.stream.prepareForTriggerAvailableNow()
    assert bound.trigger() == 1, "a query with an end waits for nobody who has reached it"
    query.stop()
    bound.stop()
