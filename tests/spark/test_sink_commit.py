"""The driver's commit, without Spark: whoever dies between any two of its steps, whoever else commits meanwhile, every
row counts once. On Tidelog and on Apache Kafka alike.
"""

from __future__ import annotations

import logging
import os
from itertools import count
from pathlib import Path
from random import Random

import pytest

from client.committed import rows_of
from client.faults import BreakingNetwork
from proving import proves
from spark.sinking import (
    IN_FILES,
    IN_TOPIC,
    QUERY,
    SOURCE,
    CountingNetwork,
    Died,
    MortalNetwork,
    PausedNetwork,
    committed,
    connected,
    last_mark,
    numbers_of,
    run,
    staged_numbers,
    up_to,
    writing_of,
)
from tidelog.client.admin import configs, groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.control import marks
from tidelog.control.marks import Sources, partition_of_marks, staging_topic_of
from tidelog.errors import (
    AbortOnly,
    BrokerError,
    DataLoss,
    LostCheckpoint,
    OutcomeUnknown,
    ProducerFenced,
    TidelogError,
    UsageError,
)
from tidelog.spark import commit_topics
from tidelog.spark.commit import Kept, commit, commit_once, commit_unmarked
from tidelog.spark.query_log import default_name, location_of
from tidelog.spark.staging import INLINE_BYTES, Stage
from tidelog.testing.broker import TestBroker
from tidelog.wire.api import ApiKey

STEPS_MAX = 120
PLACES = pytest.mark.parametrize(
    "limit", [INLINE_BYTES, IN_TOPIC, IN_FILES], ids=["in messages", "in the topic", "in files"]
)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tasks stage in files."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


@pytest.fixture
def sink(cluster: Cluster, topic: str) -> str:
    """The name of one that writes to `topic`, which has three partitions."""
    topics.create(cluster, topic, partitions=3)
    return f"s-{topic}"


@pytest.fixture
def source(cluster: Cluster) -> TopicPartition:
    """Offsets are only reported of topics that are there."""
    try:
        topics.create(cluster, SOURCE.topic, partitions=1)
    except BrokerError:
        assert SOURCE.topic in topics.names(cluster)
    return SOURCE


# Once -----------------------------------------------------------------------------------------------------------------


@proves("eo.5", "F2", "F3", "T10")
@PLACES
@pytest.mark.story
def test_micro_batches_are_written_once_however_often_they_are_run(
    cluster: Cluster, topic: str, sink: str, limit: int
) -> None:
    for batch in range(3):
        assert run(cluster, topic, sink, batch, tasks=3, limit=limit)
        assert not run(cluster, topic, sink, batch, tasks=2, limit=limit)
    assert not run(cluster, topic, sink, 0, limit=limit)
    assert committed(cluster, topic) == up_to(3)


@proves("eo.2", "eo.3", "T10")
def test_the_mark_is_the_last_record_and_targets_hold_rows_alone(cluster: Cluster, topic: str, sink: str) -> None:
    for batch in range(2):
        run(cluster, topic, sink, batch)
    at = partition_of_marks(sink)
    assert [row.key for row in rows_of(cluster, at)] == [sink.encode()] * 2
    mark = last_mark(cluster, sink)
    assert (mark.sink, mark.query_id, mark.batch_id) == (sink, QUERY, 1)
    assert mark.sources == Sources({SOURCE: len(up_to(2))})
    for target in cluster.partitions(topic):
        rows = rows_of(cluster, target)
        assert mark.ends[target] == rows[-1].offset + 1, "without the transaction's own marker"
        assert all(row.key == row.value for row in rows)


@proves("eo.3", "T10")
def test_a_partition_that_is_not_written_keeps_its_end_and_one_that_never_was_has_the_topics(
    cluster: Cluster, topic: str, sink: str
) -> None:
    one_row = staged_numbers(cluster, topic, sink, [0], tasks=1)
    (written,) = {one.at for stage in one_row for one in stage.inline}
    others = next(at for at in cluster.partitions(topic) if at != written)
    with Producer(cluster) as producer:
        producer.send(topic, b"another's", partition=others.partition)
    commit(cluster, writing_of(sink, 0, topic), one_row, lambda: connected(cluster))
    first = last_mark(cluster, sink)
    assert sorted(first.ends) == cluster.partitions(topic)
    assert (first.ends[written], first.ends[others]) == (1, 1)
    with Producer(cluster) as producer:
        producer.send(topic, b"another's", partition=others.partition)
    commit(cluster, writing_of(sink, 1, topic), one_row, lambda: connected(cluster))
    second = last_mark(cluster, sink)
    assert second.ends[others] == 1
    assert second.ends[written] == rows_of(cluster, written)[-1].offset + 1


@proves("eo.9", "T10")
def test_without_rows_a_mark_is_written_if_a_source_has_moved(cluster: Cluster, topic: str, sink: str) -> None:
    run(cluster, topic, sink, 0)
    before = last_mark(cluster, sink)
    still = writing_of(sink, 1, topic, sources=before.sources)
    assert not commit(cluster, still, [Stage(QUERY, 0)], lambda: connected(cluster))
    assert not commit(cluster, still, [], lambda: connected(cluster))
    assert last_mark(cluster, sink) == before
    assert commit(cluster, writing_of(sink, 2, topic), [], lambda: connected(cluster))
    after = last_mark(cluster, sink)
    assert (after.batch_id, after.ends) == (2, before.ends)
    assert committed(cluster, topic) == up_to(1)


@proves("eo.10", "T10")
def test_positions_of_sources_that_are_no_topics_are_in_the_mark(cluster: Cluster, topic: str, sink: str) -> None:
    moved = writing_of(sink, 0, topic, sources=Sources({}, {"0": '{"logOffset":3}'}), group="g")
    assert commit(cluster, moved, [], lambda: connected(cluster))
    found = last_mark(cluster, sink)
    assert found.sources == moved.sources
    assert not commit(cluster, moved._replace(batch_id=1), [], lambda: connected(cluster))


# Death and doubt ------------------------------------------------------------------------------------------------------


@proves("eo.5", "F2", "F3", "T10")
@PLACES
@pytest.mark.parametrize(
    "fresh", [pytest.param(True, marks=pytest.mark.full, id="a new sink"), pytest.param(False, id="a used sink")]
)
@pytest.mark.slow
def test_a_driver_may_die_at_any_step(cluster: Cluster, topic: str, sink: str, limit: int, fresh: bool) -> None:
    """And its successor has other tasks: 4 before, 2 after."""
    for batch in count():
        name = f"{sink}-{batch}" if fresh else sink
        stages = staged_numbers(cluster, topic, name, numbers_of(batch), tasks=4, limit=limit)
        network = MortalNetwork(batch + 1)
        died = False
        try:
            with connected(cluster, network) as mortal:
                commit(mortal, writing_of(name, batch, topic), stages, lambda: connected(cluster))
        except Died:
            died = True
        run(cluster, topic, name, batch, tasks=2, limit=limit)
        if not died:
            break
        assert batch < STEPS_MAX
    assert batch > 10, "a commit has more steps than that"
    assert committed(cluster, topic) == up_to(batch + 1)


@proves("eo.4", "eo.5", "F2", "F3", "T10")
@pytest.mark.parametrize(
    "api",
    [ApiKey.LIST_OFFSETS, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.END_TXN],
    ids=["before it looks", "before it takes the id", "before it writes", "before it ends"],
)
def test_a_driver_that_stood_still_while_its_successor_committed_writes_nothing(
    cluster: Cluster, topic: str, sink: str, api: int
) -> None:
    run(cluster, topic, sink, 0)

    def succeed() -> None:
        assert run(cluster, topic, sink, 1)
        assert run(cluster, topic, sink, 2)

    network = PausedNetwork(api, succeed)
    with connected(cluster, network) as zombie:
        stages = staged_numbers(cluster, topic, sink, numbers_of(1))
        try:
            assert not commit(zombie, writing_of(sink, 1, topic), stages, lambda: connected(cluster))
        except (ProducerFenced, AbortOnly, OutcomeUnknown):
            assert api in (ApiKey.PRODUCE, ApiKey.END_TXN)
    assert network.paused
    assert committed(cluster, topic) == up_to(3)
    assert run(cluster, topic, sink, 3), "and the successor goes on"
    assert committed(cluster, topic) == up_to(4)


@proves("eo.4", "eo.5", "F3", "T10")
def test_a_driver_keeps_the_id_until_another_takes_it(cluster: Cluster, topic: str, sink: str) -> None:
    """Another process of the same driver, say. Then it is fenced, and finds out what was written."""
    taken: list[int] = []
    kept: Kept = {}
    with connected(cluster, CountingNetwork(ApiKey.INIT_PRODUCER_ID, taken)) as driver:

        def commit_again(batch: int) -> bool:
            stages = staged_numbers(cluster, topic, sink, numbers_of(batch))
            return commit(driver, writing_of(sink, batch, topic), stages, lambda: connected(cluster), kept)

        for batch in range(3):
            assert commit_again(batch)
            assert not commit_again(batch)
        assert len(taken) == 1
        for batch in (3, 4):
            assert run(cluster, topic, sink, batch)
        assert not commit_again(3)
        for batch in (5, 7):
            assert run(cluster, topic, sink, batch)
            assert commit_again(batch + 1)
        assert len(taken) > 2
    assert committed(cluster, topic) == up_to(9)


@proves("eo.5", "F3", "T10")
@PLACES
def test_of_tasks_that_failed_or_ran_twice_one_counts(cluster: Cluster, topic: str, sink: str, limit: int) -> None:
    """A sibling that failed after one had finished: no commit. A speculative twin: its message is dropped by Spark."""
    staged_numbers(cluster, topic, sink, numbers_of(0)[:10], tasks=1, limit=limit)
    assert all(
        at.offset == 0 for at in list_offsets(cluster, dict.fromkeys(cluster.partitions(topic), LATEST)).values()
    )
    first = staged_numbers(cluster, topic, sink, numbers_of(0), tasks=2, limit=limit)
    twins = staged_numbers(cluster, topic, sink, numbers_of(0), tasks=2, limit=limit)
    assert commit(cluster, writing_of(sink, 0, topic), [twins[0], first[1]], lambda: connected(cluster))
    assert committed(cluster, topic) == up_to(1)


@pytest.mark.full
@proves("eo.5", "F2", "F3", "T10")
@pytest.mark.parametrize("seed", range(3))
def test_connections_that_break_at_random_repeat_and_lose_nothing(
    cluster: Cluster, topic: str, sink: str, seed: int
) -> None:
    """Whatever a driver makes of it: it goes on, or fails and is started again with other tasks."""
    random, broken = Random(seed), 0
    bootstrap = [str(address) for address in cluster.bootstrap]
    for batch in range(8):
        limit = random.choice([INLINE_BYTES, IN_TOPIC, IN_FILES])
        for attempt in range(20):
            network = BreakingNetwork(random.randrange(1 << 30), 0.2 if attempt < 10 else 0.0)
            with Cluster(bootstrap, timeout_s=5, dial=network) as mine:
                try:
                    mine.any_node()
                    network.armed = True
                    stages = staged_numbers(
                        mine, topic, sink, numbers_of(batch), tasks=random.randint(1, 4), limit=limit
                    )
                    commit(mine, writing_of(sink, batch, topic), stages, lambda: connected(cluster))
                    break
                except TidelogError:
                    continue
                finally:
                    broken += len(network.broken)
        else:
            pytest.fail("never written")
    assert broken > 5
    assert committed(cluster, topic) == up_to(8)


@proves("eo.5", "F2")
def test_a_broker_that_is_killed_between_staging_and_commit_is_waited_for(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        topics.create(cluster, "out", partitions=2)
        assert run(cluster, "out", "s", 0, limit=IN_TOPIC)
        stages = staged_numbers(cluster, "out", "s", numbers_of(1), limit=IN_TOPIC)
    tidelog_broker.kill()
    tidelog_broker.start()
    with Cluster(tidelog_broker.bootstrap, patient=True) as cluster:
        assert commit(cluster, writing_of("s", 1, "out"), stages, lambda: connected(cluster))
        assert committed(cluster, "out") == up_to(2)


# Sinks and queries ----------------------------------------------------------------------------------------------------


@proves("eo.1", "T10")
def test_two_sinks_of_one_topic_have_marks_of_their_own(cluster: Cluster, topic: str, sink: str) -> None:
    assert run(cluster, topic, f"{sink}-a", 0)
    assert run(cluster, topic, f"{sink}-b", 0)
    assert committed(cluster, topic) == sorted(up_to(1) * 2)


@proves("eo.1")
def test_a_sink_is_named_after_its_checkpoint_and_its_target() -> None:
    name = default_name("orders", "/data/checkpoint")
    same = ["file:/data/checkpoint", "file:///data/checkpoint/", "/data/checkpoint/", "//data//checkpoint"]
    same += [
        "/data/./checkpoint",
        "/data/x/../checkpoint",
        "FILE:/data/checkpoint",
        os.path.relpath("/data/checkpoint"),
    ]
    assert {default_name("orders", place) for place in same} == {name}
    remote = ["hdfs:///data/checkpoint", "hdfs:/data//checkpoint/", "HDFS:///data/checkpoint"]
    assert len({default_name("orders", place) for place in remote} | {name}) == 2
    assert location_of("s3a://bucket//checkpoint/") == "s3a://bucket/checkpoint"
    other = {default_name("orders", "/data/other"), default_name("bills", "/data/checkpoint")}
    assert name not in other and len(other) == 2
    assert name.startswith("orders.")
    for topic in ("x" * 249, None):
        marks.topic_of(default_name(topic, "s3://bucket/checkpoint"))


@proves("eo.6", "T10")
def test_another_querys_mark_is_refused_until_it_is_taken_over(cluster: Cluster, topic: str, sink: str) -> None:
    run(cluster, topic, sink, 0)
    stages = staged_numbers(cluster, topic, sink, numbers_of(1))
    new = writing_of(sink, 0, topic, query="query-2", sources=Sources({SOURCE: 40}))
    with pytest.raises(LostCheckpoint, match=r'startingOffsets \{"input":\{"0":20\}\} and takeOverFrom query-1'):
        commit(cluster, new, stages, lambda: connected(cluster))
    assert committed(cluster, topic) == up_to(1)
    taking = new._replace(take_over=QUERY)
    assert commit(cluster, taking, stages, lambda: connected(cluster))
    assert not commit(cluster, taking, stages, lambda: connected(cluster)), "once, as ever"
    assert committed(cluster, topic) == up_to(2)


@proves("eo.6", "T10")
def test_a_query_cannot_take_over_from_itself(cluster: Cluster, topic: str, sink: str) -> None:
    run(cluster, topic, sink, 0)
    stages = staged_numbers(cluster, topic, sink, numbers_of(0))
    again = writing_of(sink, 0, topic)._replace(take_over=QUERY)
    with pytest.raises(UsageError, match="takeOverFrom is query-1, this query's own id"):
        commit(cluster, again, stages, lambda: connected(cluster))
    assert committed(cluster, topic) == up_to(1)


@proves("eo.6", "T10")
def test_a_checkpoint_that_came_from_another_sink_goes_on(cluster: Cluster, topic: str, sink: str) -> None:
    assert run(cluster, topic, sink, 7)
    assert committed(cluster, topic) == numbers_of(7)


@proves("eo.6", "T10")
def test_a_checkpoint_that_is_older_than_its_sink_leaves_no_rows_out(cluster: Cluster, topic: str, sink: str) -> None:
    """Restored from a backup, a query plans its micro-batches anew: their numbers are used, and not for these rows."""
    for batch in range(3):
        run(cluster, topic, sink, batch)
    stages = staged_numbers(cluster, topic, sink, up_to(4))
    for batch in (1, 2):
        anew = writing_of(sink, batch, topic, sources=Sources({SOURCE: len(up_to(4))}))
        with pytest.raises(LostCheckpoint, match=r'older than the sink.*startingOffsets \{"input":\{"0":60\}\}'):
            commit(cluster, anew, stages, lambda: connected(cluster))
    assert not run(cluster, topic, sink, 1), "what it had read before is written"
    assert committed(cluster, topic) == up_to(3)


@proves("eo.11", "T10")
def test_source_offsets_are_a_group_in_the_same_transaction(
    cluster: Cluster, topic: str, sink: str, group: str, source: TopicPartition
) -> None:
    elsewhere = TopicPartition("nowhere-here", 0)
    sources = Sources({source: 20, elsewhere: 5})
    stages = staged_numbers(cluster, topic, sink, numbers_of(0))

    def look() -> None:
        assert groups.committed(cluster, group) == {}

    network = PausedNetwork(ApiKey.END_TXN, look)
    with connected(cluster, network) as driver:
        writing = writing_of(sink, 0, topic, group=group, sources=sources)
        assert commit(driver, writing, stages, lambda: connected(cluster))
    assert network.paused
    cluster.wait_until(lambda: bool(groups.committed(cluster, group)))
    assert {at: one.offset for at, one in groups.committed(cluster, group).items()} == {source: 20}
    assert committed(cluster, topic) == up_to(1)


# Staging --------------------------------------------------------------------------------------------------------------


@proves("eo.8", "T10")
def test_what_is_small_is_in_the_message_and_what_is_not_is_in_the_topic_until_it_is_cut(
    cluster: Cluster, topic: str, sink: str
) -> None:
    small = staged_numbers(cluster, topic, sink, numbers_of(0), tasks=1)
    assert small[0].inline and not small[0].places
    assert commit(cluster, writing_of(sink, 0, topic), small, lambda: connected(cluster))
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
        cluster.topic(staging_topic_of(sink))
    large = staged_numbers(cluster, topic, sink, numbers_of(1), tasks=2, limit=IN_TOPIC)
    assert all(stage.places and not stage.inline for stage in large)
    found = {one.name: one.value for one in configs.describe(cluster, configs.TOPIC, staging_topic_of(sink))}
    assert (found["cleanup.policy"], found["retention.ms"]) == ("delete", "86400000")
    if cluster.is_tidelog():
        assert found["tidelog.durability"] == "memory"
    assert commit(cluster, writing_of(sink, 1, topic), large, lambda: connected(cluster))
    for stage in large:
        assert stage.staging is not None
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            _read_at(cluster, stage.staging, stage.places[0].offset)
    assert committed(cluster, topic) == up_to(2)


@proves("eo.8", "T10")
def test_a_stage_that_is_gone_fails_the_micro_batch_and_the_next_try_writes_it(
    cluster: Cluster, topic: str, sink: str
) -> None:
    lost = staged_numbers(cluster, topic, sink, numbers_of(0), tasks=1, limit=IN_TOPIC)
    assert lost[0].staging is not None
    topics.delete_records(cluster, {lost[0].staging: lost[0].places[-1].offset})
    with pytest.raises(DataLoss, match="nothing was written"):
        commit(cluster, writing_of(sink, 0, topic), lost, lambda: connected(cluster))
    changed = staged_numbers(cluster, topic, sink, numbers_of(0), tasks=1, limit=IN_TOPIC)
    wrong = changed[0]._replace(places=tuple(place._replace(crc=1) for place in changed[0].places))
    with pytest.raises(DataLoss, match="nothing was written"):
        commit(cluster, writing_of(sink, 0, topic), [wrong], lambda: connected(cluster))
    assert committed(cluster, topic) == []
    assert run(cluster, topic, sink, 0, limit=IN_TOPIC)
    assert committed(cluster, topic) == up_to(1)


@proves("eo.5", "T6")
def test_an_exactly_once_sink_into_memory_warns(tidelog_broker: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    commit_topics._looked_at.clear()
    with Cluster(tidelog_broker.bootstrap) as cluster, caplog.at_level(logging.WARNING):
        topics.create(cluster, "kept", partitions=1)
        run(cluster, "kept", "s-kept", 0)
        assert not caplog.records
        topics.create(cluster, "fleeting", partitions=1, configs={"tidelog.durability": "memory"})
        for batch in range(2):
            run(cluster, "fleeting", "s", batch)
    (said,) = caplog.messages
    assert "fleeting" in said and "power cut" in said


# Batch writes ---------------------------------------------------------------------------------------------------------


@proves("eo.5", "F2", "T10")
def test_a_batch_write_is_written_once_under_its_id_whatever_was_written_since(
    cluster: Cluster, topic: str, sink: str
) -> None:
    for number, write_id in enumerate(["monday", "tuesday", "monday"]):
        stages = staged_numbers(cluster, topic, sink, numbers_of(number % 2))
        writing = writing_of(sink, 0, topic, query=write_id, sources=Sources())
        assert commit_once(cluster, writing, stages, lambda: connected(cluster)) == (number < 2)
    assert committed(cluster, topic) == up_to(2)
    assert [row.key for row in rows_of(cluster, partition_of_marks(sink))] == [
        f"{sink}:{day}".encode() for day in ("monday", "tuesday")
    ]


@proves("eo.5", "F2", "T10")
def test_a_batch_write_beside_another_tries_again(cluster: Cluster, topic: str, sink: str) -> None:
    def write_another() -> None:
        other = writing_of(sink, 0, topic, query="other", sources=Sources())
        with connected(cluster) as its:
            assert commit_once(its, other, staged_numbers(its, topic, sink, numbers_of(1)), lambda: connected(cluster))

    mine = writing_of(sink, 0, topic, query="mine", sources=Sources())
    stages = staged_numbers(cluster, topic, sink, numbers_of(0))
    with connected(cluster, PausedNetwork(ApiKey.PRODUCE, write_another)) as paused:
        assert commit_once(paused, mine, stages, lambda: connected(cluster))
    assert committed(cluster, topic) == up_to(2)


@proves("eo.5", "F2", "T10")
def test_a_batch_write_without_an_id_is_all_or_nothing(cluster: Cluster, topic: str, sink: str) -> None:
    for step in count(1):
        stages = staged_numbers(cluster, topic, sink, numbers_of(0))
        writing = writing_of(sink, 0, topic, query=f"w{step}", sources=Sources())
        with connected(cluster, MortalNetwork(step)) as mortal:
            try:
                commit_unmarked(mortal, writing, stages, lambda: connected(cluster))
                break
            except Died:
                pass
        # What it left open is not waited for here: whoever takes the id ends it.
        heir = Transactions(cluster, f"{marks.transactional_id_of(sink)}.w{step}")
        heir.start()
        found = committed(cluster, topic)
        assert found in ([], up_to(1))
        if found:
            return
    assert committed(cluster, topic) == up_to(1)


def _read_at(cluster: Cluster, at: TopicPartition, offset: int) -> None:
    consumer = Consumer(cluster)
    consumer.assign({at: offset})
    consumer.fetch()
