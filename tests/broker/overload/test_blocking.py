"""`tidelog.overload.policy=block`, on the wire: what a producer is told, what is stored, and for whom nobody waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Timer

import pytest
from raw import RawConnection, batch_of, produce

import tidelog
from against.patience import eventually
from proving import proves
from tidelog.client import ACCEPT, LATEST, Cluster, Producer, ShareReader, TopicPartition, Transactions, list_offsets
from tidelog.client.admin import configs, groups, topics
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import PartitionProduceResponse, ProduceResponse

AT = TopicPartition("orders", 0)
VERSION = 9
HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
TIMEOUT_MS = 10_000  # of `raw.produce`


Told = tuple[int, PartitionProduceResponse]  # the throttle time, and the partition's reply


class Blocked:
    """A topic that blocks at 100 records, its broker, and what one producer is told."""

    def __init__(self, broker: tidelog.Broker, cluster: Cluster, **limits: str) -> None:
        self.broker = broker
        self.cluster = cluster
        configs = {"policy": "block", "groups": "billing,audit", **(limits or {"records": "100"})}
        named = {f"tidelog.overload.{key}": value for key, value in configs.items() if not key.startswith("dead")}
        if "dead" in limits:
            named["tidelog.block.dead.ms"] = limits["dead"]
        topics.create(cluster, AT.topic, partitions=1, configs=named)
        self.read_on(0, "audit", "billing")

    def read_on(self, offset: int, *readers: str) -> None:
        for group in readers or ("audit", "billing"):
            groups.commit(self.cluster, group, {AT: offset})

    def send(self, count: int, connection: RawConnection | None = None, **options: int) -> Told:
        """What one producer is told."""
        request = produce(AT.topic, batch_of(*[b"x" * 100] * count, **options))
        if connection is not None:
            return told(connection.call(request, VERSION, ProduceResponse))
        with RawConnection(self.broker.bootstrap) as fresh:
            return told(fresh.call(request, VERSION, ProduceResponse))

    @property
    def refused(self) -> int:
        server = self.broker._server
        assert server is not None
        return int(server.broker.overload.told()[AT.topic]["refused"])

    @property
    def end(self) -> int:
        return list_offsets(self.cluster, {AT: LATEST})[AT].offset


def told(response: ProduceResponse) -> Told:
    return response.throttle_time_ms, response.responses[0].partition_responses[0]


Start = Callable[..., Blocked]


@pytest.fixture
def blocked() -> Iterator[Start]:
    broker = tidelog.Broker(in_process=True, settings={"tidelog.log.level": "ERROR"})
    with broker, Cluster(broker.bootstrap) as cluster:
        yield lambda **limits: Blocked(broker, cluster, **limits)


@proves("T5")
def test_above_the_limit_a_batch_is_stored_and_its_connection_is_not_read_for_as_long_as_is_told(
    blocked: Start,
) -> None:
    topic = blocked()
    with RawConnection(topic.broker.bootstrap) as connection, RawConnection(topic.broker.bootstrap) as other:
        for count in (100, 50):
            throttle_ms, reply = topic.send(count, connection)
            assert (throttle_ms, reply.error_code) == (0, 0), "at the limit, not above it"
        began = time.monotonic()
        throttle_ms, reply = topic.send(1, connection)
        assert (reply.error_code, topic.end) == (0, 151)
        assert 0 < throttle_ms < TIMEOUT_MS
        assert other.call(HELLO, 3, ApiVersionsResponse).error_code == 0, "others are read"
        assert connection.call(HELLO, 3, ApiVersionsResponse).error_code == 0
        assert time.monotonic() - began >= throttle_ms / 1000 * 0.9
        topic.read_on(151)
        assert topic.send(1, connection)[0] == 0, "who has caught up holds nobody"


@proves("T5")
def test_above_twice_the_limit_nothing_is_stored_and_the_error_names_the_group_and_its_lag(blocked: Start) -> None:
    topic = blocked()
    topic.send(150)
    topic.send(60)
    topic.read_on(100, "audit")
    throttle_ms, reply = topic.send(1)
    assert reply.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "group billing is more than twice the limit behind in orders-0 (210 records of 100)" in reply.error_message
    assert 0 < throttle_ms < TIMEOUT_MS
    assert topic.end == 210
    topic.read_on(100, "billing")
    assert topic.send(1)[1].error_code == 0


@proves("T5")
def test_a_batch_that_is_stored_already_is_acked_though_others_are_refused(blocked: Start) -> None:
    topic = blocked()
    with RawConnection(topic.broker.bootstrap) as connection:
        given = connection.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4, InitProducerIdResponse
        )
        stamp = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch, "base_sequence": 0}
        assert topic.send(250, connection, **stamp)[1].base_offset == 0
        assert topic.send(1, connection)[1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        again = topic.send(250, connection, **stamp)[1]
        assert (again.error_code, again.base_offset, topic.end) == (0, 0, 250)


@proves("T5")
def test_without_acks_the_connection_waits_and_nothing_is_lost(blocked: Start) -> None:
    topic = blocked(records="80")
    with RawConnection(topic.broker.bootstrap) as connection:
        for number in range(6):
            connection.send(produce(AT.topic, batch_of(*[b"%d" % number] * 90), acks=0), VERSION)
        for committed in range(0, 540, 90):
            topic.read_on(committed)
            eventually(partial(reached, topic, committed + 90))
            assert topic.end <= committed + 2 * 80 + 90, "a batch above twice the limit waits"
        assert connection.call(HELLO, 3, ApiVersionsResponse).error_code == 0, "the connection is the same"
        assert (topic.end, topic.refused) == (540, 0)


def read_all(cluster: Cluster) -> None:
    for group in ("audit", "billing"):
        groups.commit(cluster, group, {AT: 250})


def reached(topic: Blocked, offset: int) -> bool:
    return topic.end >= offset


@proves("T5")
@pytest.mark.parametrize("limits", [{"bytes": "10000"}, {"ms": "60000"}])
def test_bytes_and_the_age_of_the_first_unread_record_are_limits_too(blocked: Start, limits: dict[str, str]) -> None:
    """The records of `raw` are of 1970."""
    topic = blocked(**limits)
    topic.send(300)
    eventually(lambda: topic.send(1)[1].error_code, lambda code: code == ErrorCode.NOT_ENOUGH_REPLICAS)
    topic.read_on(topic.end)
    eventually(lambda: topic.send(1)[1].error_code, lambda code: code == 0)


@proves("T5")
def test_a_group_without_member_and_commit_is_no_longer_waited_for_until_it_is_back(blocked: Start) -> None:
    topic = blocked(records="100", dead="300")
    topic.send(250)
    assert topic.send(1)[1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    eventually(lambda: topic.send(1)[1].error_code, lambda code: code == 0)
    assert topic.send(1)[0] == 0
    topic.read_on(1)
    eventually(lambda: topic.send(1)[1].error_code, lambda code: code == ErrorCode.NOT_ENOUGH_REPLICAS)


@proves("T5")
def test_a_transaction_that_commits_offsets_of_the_group_is_not_held_and_others_are(blocked: Start) -> None:
    """Its input and its output are the same topic: held, it would wait for itself."""
    topic = blocked()
    topic.send(250)
    mover, stranger = Transactions(topic.cluster, "mover"), Transactions(topic.cluster, "stranger")
    mover.start()
    stranger.start()
    for number in range(3):
        with mover.transaction() as producer:
            producer.send(AT.topic, b"moved", partition=0)
            producer.flush()
            mover.send_offsets("billing", {AT: number})
    with stranger.transaction() as producer:
        producer.send(AT.topic, b"nobody knows yet what it commits", partition=0)
    assert topic.refused == 0
    with Cluster(topic.broker.bootstrap) as of_readers:
        reading = Timer(0.5, read_all, (of_readers,))
        reading.start()
        with stranger.transaction() as producer:
            producer.send(AT.topic, b"now it is known", partition=0)
        reading.join()
    assert topic.refused > 0
    eventually(partial(reached, topic, 260))  # five transactions, with a marker each


@proves("T5")
def test_an_open_transaction_counts_when_it_ends(blocked: Start) -> None:
    """Before that nobody can read it: its producer would wait for readers that wait for it."""
    topic = blocked()
    writer = Transactions(topic.cluster, "writer")
    writer.start()
    with writer.transaction() as producer:
        producer.send(AT.topic, b"from now on it is known to commit no offsets", partition=0)
    with writer.transaction() as producer:
        for _ in range(3):
            for _ in range(100):
                producer.send(AT.topic, b"x", partition=0)
            producer.flush()
    eventually(partial(reached, topic, 303))
    assert (topic.refused, topic.end) == (0, 303)
    assert topic.send(1)[1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@proves("T5")
def test_after_a_restart_producers_wait_for_the_same_groups(tmp_path: Path) -> None:
    quiet = {"tidelog.log.level": "ERROR"}
    with tidelog.Broker(tmp_path / "data", in_process=True, settings=quiet) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Blocked(broker, cluster).send(250)
        broker.stop()
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            request = produce(AT.topic, batch_of(b"x"))
            _, reply = told(connection.call(request, VERSION, ProduceResponse))
            assert reply.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        with Cluster(broker.bootstrap) as cluster:
            for group in ("audit", "billing"):
                groups.commit(cluster, group, {AT: 250})
        with RawConnection(broker.bootstrap) as connection:
            assert told(connection.call(request, VERSION, ProduceResponse))[1].error_code == 0


@proves("T5")
def test_producers_wait_for_a_share_group_too(blocked: Start) -> None:
    """It is behind by what is not done, whether somebody has it or not."""
    topic = blocked(records="100", groups="workers")
    configs.alter(topic.cluster, configs.GROUP, "workers", set={"share.auto.offset.reset": "earliest"})
    reader = ShareReader(topic.cluster, "workers", [AT.topic])
    topic.send(250)
    jobs: list[int] = []
    while len(jobs) < 150:
        jobs += [one.row.offset for one in reader.fetch()]
    assert topic.send(1)[1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    reader.acknowledge({AT: dict.fromkeys(jobs, ACCEPT)})
    assert topic.send(1)[1].error_code == 0
    reader.close()


@proves("T4", "T5")
@pytest.mark.parametrize("limits", [{"records": "100"}, {"records": "100", "ms": "60000"}])
def test_producers_do_not_wait_for_what_a_queue_delivers_later(blocked: Start, limits: dict[str, str]) -> None:
    """One job for tomorrow, an hour old, and behind it more than twice the limit of jobs that are done."""
    topic = blocked(groups="workers", **limits)
    configs.alter(topic.cluster, configs.TOPIC, AT.topic, set={"tidelog.delay.max.ms": "86400000"})
    configs.alter(topic.cluster, configs.GROUP, "workers", set={"share.auto.offset.reset": "earliest"})
    reader = ShareReader(topic.cluster, "workers", [AT.topic])
    hour_ago = int(time.time() * 1000) - 3_600_000
    with Producer(topic.cluster) as producer:
        producer.send(AT.topic, b"tomorrow", timestamp=hour_ago, headers=[("tidelog-delay-ms", b"86400000")])
        for _ in range(5):
            for _ in range(90):
                producer.send(AT.topic, b"now")
            producer.flush()
            done = 0
            while done < 90:
                jobs = reader.fetch()
                reader.acknowledge({AT: {one.row.offset: ACCEPT for one in jobs}})
                done += len(jobs)
    assert (topic.end, topic.refused) == (451, 0)
    assert topic.send(1)[0] == 0, "nor are they held"
    reader.close()
