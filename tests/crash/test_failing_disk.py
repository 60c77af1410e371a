"""Syncs that fail, writes that are refused, reads that break: only what needs them fails, and nothing acked is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from crash.administrator import Decided, administer
from crash.clients import PATIENCE_S, Load, write, write_confluent
from crash.ledger import Ledger, read_all, value_of
from crash.powered_broker import PoweredBroker
from crash.story import tell
from proving import proves
from tidelog.broker.topics import GROUPS_TOPIC, TOPICS_TOPIC, TRANSACTIONS_TOPIC, Topic
from tidelog.client.admin import groups, topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import NO_LEADER, TopicPartition
from tidelog.client.producer import Producer
from tidelog.client.transactions import Transactions
from tidelog.errors import OfflineError, OutcomeUnknown, TidelogError
from tidelog.log import loading
from tidelog.record.codec import restamp
from tidelog.record.columns import decode, encode
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

SEEDS = (1, pytest.param(2, marks=pytest.mark.full))
SOAK_RUNS = 10
ROUNDS, SOAK_ROUNDS = 6, 20
BY_NAME, FETCH_BY_NAME = 9, 12  # versions of Produce and Fetch
JOINS = 12  # the version of Produce that names partitions of a transaction
SETTINGS: dict[str, object] = {"log.roll.ms": 200}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PoweredBroker]:
    made = PoweredBroker(tmp_path, SETTINGS)
    assert made.start()
    yield made
    made.end()


@pytest.fixture
def cluster(broker: PoweredBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap, timeout_s=PATIENCE_S) as cluster:
        yield cluster


def produce(
    cluster: Cluster, at: TopicPartition, value: bytes, *, owner: Transactions | None = None
) -> PartitionProduceResponse:
    """One batch, once, whatever is answered; in the transaction of its owner, if there is one."""
    records, version, name = encode([(None, value, (), int(time.time() * 1000))]), BY_NAME, None
    if owner is not None:
        restamp(records, owner.identity.producer_id, owner.identity.producer_epoch, 0, True)
        version, name = JOINS, owner.transactional_id
    data = TopicProduceData(name=at.topic, partition_data=[PartitionProduceData(index=at.partition, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, transactional_id=name, topic_data=[data])
    (topic,) = cluster.any_node().call(request, ProduceResponse, version=version).responses
    return topic.partition_responses[0]


def reconnect(cluster: Cluster) -> None:
    """To a broker that has come back."""
    cluster.close()
    cluster.forget()


def folder_of(cluster: Cluster, at: TopicPartition) -> str:
    return f"{cluster.topic(at.topic).topic_id.hex()}-{at.partition}/"


def values_of(cluster: Cluster, at: TopicPartition) -> list[bytes]:
    return list(read_all(cluster, [at])[at].values.values())


# Failing syncs --------------------------------------------------------------------------------------------------------


@proves("T6")
def test_a_failed_sync_takes_its_partition_offline_and_no_other(broker: PoweredBroker, cluster: Cluster) -> None:
    topics.create(cluster, "t", partitions=2)
    bad, good = TopicPartition("t", 0), TopicPartition("t", 1)
    for at in (bad, good):
        assert produce(cluster, at, b"before").error_code == 0
    broker.disk.fail("sync", OSError(EIO, "input/output error"), name=folder_of(cluster, bad))
    for _ in range(3):
        assert produce(cluster, bad, b"in doubt").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(cluster, good, b"well").error_code == 0
    assert values_of(cluster, good) == [b"before", b"well", b"well", b"well"]
    cluster.forget()
    partitions = cluster.ask_metadata(["t"]).topics["t"].partitions
    assert (partitions[0].leader, partitions[1].leader) == (NO_LEADER, 1)
    broker.stop()
    assert broker.start()
    reconnect(cluster)
    assert produce(cluster, bad, b"after").error_code == 0
    found = values_of(cluster, bad)
    assert found[0] == b"before" and found[-1] == b"after"
    assert found[1:-1] in ([], [b"in doubt"]), "only the batch whose sync failed was ever written"


@proves("T6")
def test_after_a_failed_sync_and_a_restart_the_disk_has_what_readers_see(
    broker: PoweredBroker, cluster: Cluster, tmp_path: Path
) -> None:
    """The kernel calls pages clean that it could not write: what recovery keeps, it must write once more."""
    at = TopicPartition("t", 0)
    topics.create(cluster, "t", partitions=1)
    assert produce(cluster, at, b"before").error_code == 0
    broker.disk.fail("sync", OSError(EIO, "input/output error"), name=folder_of(cluster, at))
    assert produce(cluster, at, b"in doubt").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.stop()
    assert broker.start()
    reconnect(cluster)
    seen = values_of(cluster, at)
    for seed in range(5):
        broker.crash(random.Random(seed))
        assert broker.start()
        reconnect(cluster)
        assert values_of(cluster, at) == seen


@proves("T6")
@pytest.mark.parametrize(
    "internal", [TOPICS_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC], ids=["topics", "groups", "transactions"]
)
def test_a_failed_sync_of_the_brokers_own_topics_ends_the_broker(
    broker: PoweredBroker, cluster: Cluster, internal: Topic
) -> None:
    at = TopicPartition("kept", 0)
    topics.create(cluster, "kept", partitions=1)
    groups.commit(cluster, "group", {at: 1})
    broker.disk.fail("sync", OSError(EIO, "input/output error"), name=internal.topic_id.hex())
    with Cluster(broker.bootstrap) as hasty, pytest.raises(TidelogError):
        hasty.any_node()
        hasty.timeout_s = 0.5  # and not before: what is to fail must have been asked for
        if internal is TOPICS_TOPIC:
            topics.create(hasty, "in-doubt")
        elif internal is TRANSACTIONS_TOPIC:
            transactions.abort(hasty, "in-doubt")
        else:
            groups.commit(hasty, "group", {at: 2})
    broker.join()
    assert isinstance(broker.failed, OfflineError)
    assert broker.start()
    reconnect(cluster)
    assert "kept" in topics.names(cluster)
    assert groups.committed(cluster, "group")[at].offset in ((1, 2) if internal is GROUPS_TOPIC else (1,))


# Reads ----------------------------------------------------------------------------------------------------------------


def fetch_both(cluster: Cluster, topic: str) -> list[PartitionData]:
    """Both partitions from their beginning, in one request."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 1)]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=wanted)])
    answer = cluster.any_node().call(request, FetchResponse, version=FETCH_BY_NAME)
    assert answer.error_code == 0
    return answer.responses[0].partitions


@proves("T6")
@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_read_that_fails_is_an_error_for_its_partition_until_it_works_again(
    broker: PoweredBroker, cluster: Cluster, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "LOAD_AGAIN_S", 0.1)
    topics.create(cluster, "t", partitions=2)
    for index in (0, 1):
        assert produce(cluster, TopicPartition("t", index), b"value").error_code == 0
    broker.stop()
    assert broker.start()
    reconnect(cluster)
    folder = folder_of(cluster, TopicPartition("t", 0))
    broker.disk.fail(operation, OSError(EIO, "input/output error"), name=folder, times=1000)
    bad, good = fetch_both(cluster, "t")
    assert bad.error_code == ErrorCode.KAFKA_STORAGE_ERROR and not bad.records
    assert good.error_code == 0 and [row.value for row in decode(good.records).rows()] == [b"value"]
    broker.disk.mend()
    assert values_of(cluster, TopicPartition("t", 0)) == [b"value"]


# No room --------------------------------------------------------------------------------------------------------------


@proves("T6", "T8")
def test_on_a_full_disk_producers_get_an_error_readers_read_and_room_mends_it(
    broker: PoweredBroker, cluster: Cluster
) -> None:
    at = TopicPartition("t", 0)
    topics.create(cluster, "t", partitions=1)
    assert produce(cluster, at, b"before").error_code == 0
    broker.disk.capacity = used_bytes(broker) + 20_000
    acked = [b"before"]
    while not (answer := produce(cluster, at, value := value_of("w", len(acked), b"x" * 3000))).error_code:
        assert answer.base_offset == len(acked)
        acked.append(value)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "room" in (answer.error_message or ""), answer.error_message
    assert values_of(cluster, at) == acked
    broker.disk.mend()
    assert produce(cluster, at, b"after").base_offset == len(acked)
    broker.crash(random.Random(1))
    assert broker.start()
    reconnect(cluster)
    assert values_of(cluster, at) == [*acked, b"after"]


@proves("F3", "T6", "T8")
def test_on_a_disk_without_any_room_who_asks_for_a_producer_id_is_answered_and_room_mends_it(
    broker: PoweredBroker, cluster: Cluster
) -> None:
    """Whether ids are in hand or have to be reserved, and whatever the connection is asked next."""
    broker.disk.capacity = used_bytes(broker)
    connection = cluster.any_node()
    for _ in range(3):
        assert ask_for_id(cluster, None).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert ask_for_id(cluster, "t-1").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.disk.mend()
    first = ask_for_id(cluster, "t-1")
    assert (first.error_code, first.producer_epoch) == (0, 0)
    broker.disk.capacity = used_bytes(broker)
    for name in ("t-1", "t-2"):
        assert ask_for_id(cluster, name).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.disk.mend()
    again, other = ask_for_id(cluster, "t-1"), ask_for_id(cluster, "t-2")
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1), "what was refused has never been"
    assert (other.error_code, other.producer_epoch) == (0, 0) and other.producer_id != first.producer_id
    assert cluster.any_node() is connection and not connection.closed


@proves("F2", "F3", "T6", "T8")
def test_a_transaction_on_a_disk_without_any_room_is_refused_and_goes_on_when_there_is_some(
    broker: PoweredBroker, cluster: Cluster
) -> None:
    at = TopicPartition("t", 0)
    topics.create(cluster, "t", partitions=1)
    with Transactions(cluster, "t-1") as owner:
        owner.begin()
        broker.disk.capacity = used_bytes(broker)
        connection = cluster.any_node()
        refused = produce(cluster, at, b"aside", owner=owner)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and "disk may be full" in refused.error_message
        assert cluster.any_node() is connection and not connection.closed
        broker.disk.mend()
        owner.produce(at, encode([(None, b"within", (), int(time.time() * 1000))]))
        owner.producer.flush()
        broker.disk.capacity = used_bytes(broker)
        cluster.timeout_s = 1.0
        with pytest.raises(OutcomeUnknown, match="COORDINATOR_NOT_AVAILABLE"):
            owner.commit()
        broker.disk.mend()
        cluster.timeout_s = PATIENCE_S
        owner.commit()
        assert cluster.any_node() is connection and not connection.closed
    assert values_of(cluster, at) == [b"within"]


def ask_for_id(cluster: Cluster, transactional_id: str | None) -> InitProducerIdResponse:
    """Once, whatever is answered."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return cluster.any_node().call(request, InitProducerIdResponse, version=4)


@proves("T6", "T8")
def test_a_stop_on_a_full_disk_says_what_it_means_and_the_next_start_has_everything(
    broker: PoweredBroker, cluster: Cluster
) -> None:
    at = TopicPartition("t", 0)
    topics.create(cluster, "t", partitions=1)
    assert produce(cluster, at, b"before").error_code == 0
    broker.disk.capacity = used_bytes(broker)
    broker.end()
    assert broker.failed is None and not broker.left_clean
    (line,) = [line for line in broker.said().splitlines() if " ERROR " in line]
    assert "stopped, but the data folder was not marked clean" in line and str(broker.data) in line
    assert "No space left" in line and "nothing acked is lost; the next start recovers every partition" in line
    broker.disk.mend()
    assert broker.start()
    reconnect(cluster)
    assert values_of(cluster, at) == [b"before"]


@proves("F3", "T6")
@pytest.mark.parametrize("refused", range(1, 4))
def test_batches_behind_one_that_was_refused_are_written_once_and_in_order(
    broker: PoweredBroker, cluster: Cluster, refused: int
) -> None:
    at = TopicPartition("t", 0)
    topics.create(cluster, "t", partitions=1)
    producer = Producer(cluster, batch_bytes=1)
    producer.send("t", value_of("w", 0), partition=0)
    producer.flush()
    broker.disk.fail("write", OSError(ENOSPC, "no space left on device"), name=folder_of(cluster, at), times=refused)
    sent = [producer.send("t", value_of("w", number), partition=0) for number in range(1, 20)]
    producer.flush()
    assert [one.offset for one in sent] == list(range(1, 20))
    assert values_of(cluster, at) == [value_of("w", number) for number in range(20)]


def used_bytes(broker: PoweredBroker) -> int:
    return sum(path.stat().st_size for path in broker.disk.folder.rglob("*") if path.is_file())


# Anything, at any time ------------------------------------------------------------------------------------------------


class Story:
    """Clients that go on, and a disk that is full, refuses or fails now and then."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ledger = Ledger()
        self.ledger.retained.add("cut")
        self.decided = Decided()
        self.broker = PoweredBroker(folder, SETTINGS)
        self.load = Load(self.broker.bootstrap, self.ledger, self.rng, pause_s=0.05)

    def begin(self) -> None:
        assert self.broker.start()
        with Cluster(self.broker.bootstrap) as cluster:
            for name in ("t", "cut"):
                topics.create(cluster, name, partitions=2)
                self.decided.created.add(name)
        cut = [TopicPartition("cut", index) for index in (0, 1)]
        places = [TopicPartition("t", index) for index in (0, 1)]
        self.load.start(write, "own-idempotent", places + cut, True)
        self.load.start(write, "own-plain", places + cut, False)
        self.load.start(write_confluent, "confluent", places)
        self.load.start(administer, self.decided, cut)

    def step(self) -> None:
        time.sleep(self.rng.uniform(0.05, 0.4))
        fault = self.rng.choice((self.full, self.refuse, self.refuse, self.fail_sync, self.cut))
        fault()
        self.broker.disk.mend()
        if not self.broker.running:
            self.broker.end()
            assert self.broker.start()
        self.load.check()
        with Cluster(self.broker.bootstrap) as cluster:
            self.decided.check(cluster)

    def full(self) -> None:
        self.broker.disk.capacity = used_bytes(self.broker) + self.rng.choice((0, 5_000, 50_000))
        time.sleep(self.rng.uniform(0.1, 0.5))

    def refuse(self) -> None:
        for _ in range(self.rng.randint(1, 20)):
            error = OSError(ENOSPC, "no space left on device")
            self.broker.disk.fail(self.rng.choice(("write", "write", "create")), error, times=self.rng.randint(1, 3))
            time.sleep(self.rng.uniform(0, 0.02))

    def fail_sync(self) -> None:
        """Its partition is offline then, or the broker has ended; a restart, on the same disk, mends it."""
        self.broker.disk.fail(self.rng.choice(("sync", "sync_folder")), OSError(EIO, "input/output error"))
        time.sleep(self.rng.uniform(0.05, 0.3))
        self.broker.end()
        self.broker.disk.mend()
        assert self.broker.start()

    def cut(self) -> None:
        self.broker.crash(self.rng)
        assert self.broker.start()

    def finish(self) -> None:
        self.load.stop()
        for _ in range(2):
            with Cluster(self.broker.bootstrap) as cluster:
                self.decided.check(cluster)
                there = {topic.name: topic for topic in topics.describe(cluster)}
                places = [TopicPartition(name, index) for name, topic in there.items() for index in topic.partitions]
                self.ledger.check(read_all(cluster, places))
            self.broker.crash(self.rng)
            assert self.broker.start()
        self.broker.end()

    def give_up(self) -> None:
        self.load.stopped.set()


@proves("T1", "T6")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.slow
def test_a_disk_that_fails_now_and_then_loses_nothing_acked(tmp_path: Path, seed: int) -> None:
    tell(Story(tmp_path, seed), seed, ROUNDS)


@pytest.mark.soak
@proves("T1", "T6")
@pytest.mark.parametrize("run_number", range(SOAK_RUNS))
def test_a_disk_that_fails_again_and_again_loses_nothing_acked(tmp_path: Path, seed: int, run_number: int) -> None:
    seed = seed * SOAK_RUNS + run_number
    tell(Story(tmp_path, seed), seed, SOAK_ROUNDS)
