"""All or nothing, by both transaction versions: commit, abort, offsets, what fences whom, and what an owner is told."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

import tidelog
from client.committed import rows_of, values_of
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client.admin import groups, topics, transactions
from tidelog.client.cluster import Cluster
from tidelog.client.identity import ProducerIdentity, transaction_version
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import GroupMember, State, Transactions, join
from tidelog.errors import AbortOnly, BrokerError, ProducerFenced, UsageError
from tidelog.record.codec import scan
from tidelog.record.columns import encode
from tidelog.testing.broker import TestBroker
from tidelog.wire.error_code import ErrorCode


@pytest.fixture(params=[2, 1], ids=["v2", "v1"])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture
def at(cluster: Cluster, topic: str) -> TopicPartition:
    topics.create(cluster, topic, partitions=2)
    return TopicPartition(topic, 0)


@pytest.fixture
def owner(cluster: Cluster, topic: str, version: int) -> Iterator[Transactions]:
    with Transactions(cluster, f"id-{topic}", version=version) as started:
        yield started


def other(at: TopicPartition) -> TopicPartition:
    return TopicPartition(at.topic, 1)


def batch_of(*values: bytes) -> bytearray:
    return encode([(None, value, (), 0) for value in values])


@proves("F2", "T10")
def test_a_transaction_counts_in_all_partitions_or_in_none(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    with owner.transaction() as producer:
        producer.send(at.topic, b"a", partition=0)
        producer.send(at.topic, b"b", partition=1)
    with pytest.raises(ZeroDivisionError), owner.transaction() as producer:
        producer.send(at.topic, b"not this", partition=0)
        producer.flush()
        raise ZeroDivisionError
    with owner.transaction() as producer:
        producer.send(at.topic, b"c", partition=0)
    assert values_of(cluster, at) == [b"a", b"c"]
    assert values_of(cluster, other(at)) == [b"b"]
    assert values_of(cluster, at, read_committed=False) == [b"a", b"not this", b"c"]


@proves("F2", "T10")
@pytest.mark.story
def test_nothing_is_seen_before_the_commit(owner: Transactions, cluster: Cluster, at: TopicPartition) -> None:
    owner.begin()
    delivery = owner.producer.send(at.topic, b"a", partition=0)
    owner.producer.flush()
    assert (delivery.acked, delivery.offset) == (True, 0)
    assert [one.at for one in transactions.open_in(cluster, [at])] == [at]
    owner.commit()
    assert values_of(cluster, at) == [b"a"]


@proves("F2", "F3", "T10")
def test_batches_encoded_elsewhere_are_stamped_anew_and_their_records_left_alone(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    rows = [(b"key", b"value", [("h", b"1")], 1_700_000_000_000), (None, None, (), 1_700_000_000_001)]
    foreign = encode(rows, producer_id=77, producer_epoch=3, base_sequence=12, compression="gzip")
    owner.begin()
    for _ in range(3):
        owner.produce(at, bytes(foreign))
    identity = owner.identity
    owner.producer.flush()
    owner.commit()
    read = rows_of(cluster, at)
    assert [(row.key, row.value, list(row.headers), row.timestamp) for row in read] == [
        (key, value, list(headers), timestamp) for _ in range(3) for key, value, headers, timestamp in rows
    ]
    consumed = scan(_fetched(cluster, at)).headers
    written = [header for header in consumed if not header.is_control]
    assert [header.base_sequence for header in written] == [0, 2, 4]
    assert {(header.producer_id, header.producer_epoch, header.is_transactional) for header in written} == {
        (identity.producer_id, identity.producer_epoch, True)
    }


def _fetched(cluster: Cluster, at: TopicPartition) -> memoryview:
    from tidelog.client.consumer import Consumer

    consumer = Consumer(cluster)
    consumer.assign({at: 0})
    (fetched,) = consumer.fetch()
    return fetched.batches


@proves("F2", "T7", "T10")
def test_offsets_count_with_the_transaction(
    owner: Transactions, cluster: Cluster, at: TopicPartition, group: str
) -> None:
    owner.begin()
    owner.producer.send(at.topic, b"a", partition=1)
    owner.send_offsets(group, {at: 5, other(at): 7}, metadata="noted")
    owner.commit()
    owner.begin()
    owner.send_offsets(group, {at: 9})
    owner.abort()
    owner.start()
    found = groups.committed(cluster, group)
    assert {place: (one.offset, one.metadata) for place, one in found.items()} == {
        at: (5, "noted"),
        other(at): (7, "noted"),
    }


@proves("F3", "T10")
def test_offsets_of_a_member_that_is_none_any_more_make_the_transaction_abort_only(
    owner: Transactions, cluster: Cluster, at: TopicPartition, group: str
) -> None:
    owner.begin()
    owner.producer.send(at.topic, b"a", partition=0)
    with pytest.raises(BrokerError):
        owner.send_offsets(group, {at: 1}, member=GroupMember(4, "thrown-out"))
    with pytest.raises(AbortOnly, match="abort it and begin again"):
        owner.commit()
    owner.abort()
    with owner.transaction() as producer:
        producer.send(at.topic, b"b", partition=0)
    assert values_of(cluster, at) == [b"b"]
    assert groups.committed(cluster, group) == {}


@proves("F2", "T10")
def test_a_transaction_with_nothing_in_it_costs_nothing(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    before = owner.identity
    for _ in range(3):
        with owner.transaction():
            pass
        owner.begin()
        owner.abort()
    assert owner.identity == before
    assert values_of(cluster, at) == []


@proves("F3", "T10")
def test_every_end_moves_the_epoch_in_version_2_alone(owner: Transactions, at: TopicPartition, version: int) -> None:
    first = owner.identity
    for _ in range(3):
        with owner.transaction() as producer:
            producer.send(at.topic, b"a", partition=0)
    owner.begin()
    owner.producer.send(at.topic, b"b", partition=0)
    owner.producer.flush()
    owner.abort()
    assert owner.identity == first._replace(producer_epoch=first.producer_epoch + (4 if version == 2 else 0))


@proves("F3", "T10")
def test_the_newer_owner_wins_and_the_zombie_is_told(
    owner: Transactions, cluster: Cluster, at: TopicPartition, version: int
) -> None:
    owner.begin()
    owner.producer.send(at.topic, b"zombie's", partition=0)
    owner.producer.flush()
    heir = Transactions(cluster, owner.transactional_id, version=version)
    heir.start()
    with pytest.raises(ProducerFenced, match=r"another owner began.*; stop this one"):
        owner.commit()
    assert owner.state is State.FENCED
    with heir.transaction() as producer:
        producer.send(at.topic, b"heir's", partition=0)
    with pytest.raises(UsageError, match="fenced"):
        owner.begin()
    assert values_of(cluster, at) == [b"heir's"]
    owner.start()
    with owner.transaction() as producer:
        producer.send(at.topic, b"taken back", partition=0)
    with pytest.raises(ProducerFenced), heir.transaction() as producer:
        producer.send(at.topic, b"late", partition=0)
    assert values_of(cluster, at) == [b"heir's", b"taken back"]


@proves("F3", "T10")
@pytest.mark.parametrize("step", ["send", "offsets", "abort"])
def test_a_zombie_is_told_at_every_step(
    owner: Transactions, cluster: Cluster, at: TopicPartition, group: str, version: int, step: str
) -> None:
    owner.begin()
    owner.producer.send(at.topic, b"zombie's", partition=0)
    owner.producer.flush()
    Transactions(cluster, owner.transactional_id, version=version).start()
    with pytest.raises(ProducerFenced):
        if step == "send":
            owner.producer.send(at.topic, b"more", partition=1)
            owner.producer.flush()
        elif step == "offsets":
            owner.send_offsets(group, {at: 3})
        else:
            owner.abort()
    assert values_of(cluster, at) == values_of(cluster, other(at)) == []
    assert groups.committed(cluster, group) == {}


@proves("F3", "T10")
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_owner_told(topic: str, version: int) -> None:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    with tidelog.Broker(settings=often) as broker, Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, topic, partitions=1)
        at = TopicPartition(topic, 0)
        owner = Transactions(cluster, "slow", version=version, timeout_ms=500)
        owner.start()
        owner.begin()
        owner.producer.send(topic, b"late", partition=0)
        owner.producer.flush()
        cluster.wait_until(lambda: not transactions.open_in(cluster, [at]))
        with pytest.raises(ProducerFenced, match="open longer than its timeout_ms"):
            owner.commit()
        assert values_of(cluster, at) == []


@proves("F2", "T10")
def test_a_batch_that_fails_makes_the_transaction_abort_only(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    owner.begin()
    owner.producer.send(at.topic, b"good", partition=0)
    owner.producer.send(at.topic, b"nowhere", partition=17)
    with pytest.raises(BrokerError, match="has partitions 0 to 1"):
        owner.producer.flush()
    after = owner.producer.send(at.topic, b"after", partition=0)
    with pytest.raises(AbortOnly):
        owner.producer.flush()
    assert isinstance(after.error, AbortOnly) and not after.acked
    with pytest.raises(AbortOnly) as said:
        owner.commit()
    assert isinstance(said.value.__cause__, BrokerError)
    owner.abort()
    with owner.transaction() as producer:
        producer.send(at.topic, b"next", partition=0)
    assert values_of(cluster, at) == [b"next"]


@proves("F2", "T10")
def test_a_record_that_is_too_large_makes_the_transaction_abort_only(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    with pytest.raises(AbortOnly, match=r"max\.message\.bytes"), owner.transaction() as producer:
        producer.send(at.topic, b"small", partition=1)
        producer.send(at.topic, bytes(3 << 20), partition=0)
    with owner.transaction() as producer:
        producer.send(at.topic, b"next", partition=0)
    assert (values_of(cluster, at), values_of(cluster, other(at))) == ([b"next"], [])


@proves("F2")
def test_what_was_gathered_is_not_written_after_an_abort(
    owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    owner.begin()
    delivery = owner.producer.send(at.topic, b"gathered", partition=0)
    owner.abort()
    assert not delivery.acked
    with owner.transaction() as producer:
        producer.send(at.topic, b"next", partition=0)
    assert values_of(cluster, at, read_committed=False) == [b"next"]


@proves("F2")
def test_steps_out_of_order_are_refused_and_say_what_to_do(cluster: Cluster, at: TopicPartition) -> None:
    owner = Transactions(cluster, f"id-{at.topic}")
    for step in (owner.begin, owner.commit, owner.abort, owner.hand_over):
        with pytest.raises(UsageError, match=r"not started; start\(\) first"):
            step()
    owner.start()
    for step in (owner.commit, owner.abort, owner.hand_over):
        with pytest.raises(UsageError, match=r"is ready; begin\(\) one first"):
            step()
    with pytest.raises(UsageError, match=r"begin\(\) one first"):
        owner.producer.send(at.topic, b"outside")
    with pytest.raises(UsageError, match=r"begin\(\) one first"):
        owner.produce(at, batch_of(b"outside"))
    owner.begin()
    with pytest.raises(UsageError, match=r"is open; commit\(\) or abort\(\) it first"):
        owner.begin()
    owner.abort()


@proves("F2", "T10")
def test_a_time_out_that_the_broker_does_not_allow_is_refused(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerError, match=r"transaction\.max\.timeout\.ms") as said:
        Transactions(cluster, f"id-{topic}", timeout_ms=2_000_000_000).start()
    assert said.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@proves("F2", "T10")
def test_the_version_is_the_one_that_the_cluster_has_finalized(cluster: Cluster, topic: str) -> None:
    assert transaction_version(cluster) == 2
    assert Transactions(cluster, f"id-{topic}").start().version == 2
    cluster.any_node().finalized["transaction.version"] = 0
    assert Transactions(cluster, f"id-{topic}").start().version == 1


@proves("F2", "T10")
def test_leaving_the_owner_aborts_what_is_open(cluster: Cluster, at: TopicPartition, version: int) -> None:
    with Transactions(cluster, f"id-{at.topic}", version=version) as owner:
        owner.begin()
        owner.producer.send(at.topic, b"left", partition=0)
        owner.producer.flush()
    assert values_of(cluster, at) == []


# Hand-over ------------------------------------------------------------------------------------------------------------


def write_elsewhere(bootstrap: str, identity: ProducerIdentity, at: TopicPartition, values: list[bytes]) -> None:
    """In another process, which knows the identity and nothing else."""

    def write() -> None:
        with Cluster(bootstrap, timeout_s=TIMEOUT_S) as cluster, join(cluster, identity, batch_bytes=64) as producer:
            for value in values:
                producer.send(at.topic, value, partition=at.partition)

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join(TIMEOUT_S)
    assert process.exitcode == 0


@proves("F2", "F3", "T10")
def test_other_processes_write_inside_an_open_transaction(
    broker: Broker, owner: Transactions, cluster: Cluster, at: TopicPartition
) -> None:
    """Two transactions, and the same partitions in both: their writers count from 0 each time."""
    many = [b"%d" % number for number in range(30)]
    for _ in range(2):
        owner.begin()
        identity = owner.hand_over()
        write_elsewhere(broker.bootstrap, identity, at, many)
        write_elsewhere(broker.bootstrap, identity, other(at), [b"b"])
        owner.commit()
    owner.begin()
    write_elsewhere(broker.bootstrap, owner.hand_over(), at, [b"not this"])
    owner.abort()
    with owner.transaction() as producer:
        producer.send(at.topic, b"own", partition=0)
    assert values_of(cluster, at) == [*many, *many, b"own"]
    assert values_of(cluster, other(at)) == [b"b", b"b"]


@proves("F3", "T10")
def test_whoever_joins_is_fenced_with_the_owner(
    owner: Transactions, cluster: Cluster, at: TopicPartition, version: int
) -> None:
    owner.begin()
    joined = join(cluster, owner.hand_over())
    joined.send(at.topic, b"early", partition=0)
    joined.flush()
    Transactions(cluster, owner.transactional_id, version=version).start()
    joined.send(at.topic, b"late", partition=0)
    with pytest.raises(ProducerFenced):
        joined.flush()
    assert values_of(cluster, at) == []


@proves("F3", "T10")
def test_after_its_end_nobody_writes_under_a_handed_over_identity(
    owner: Transactions, cluster: Cluster, at: TopicPartition, version: int
) -> None:
    owner.begin()
    joined = join(cluster, owner.hand_over())
    joined.send(at.topic, b"in time", partition=0)
    joined.flush()
    owner.commit()
    # Until the marker is written Apache Kafka takes more, and it counts: so an owner waits for all who joined.
    assert values_of(cluster, at) == [b"in time"]
    if version == 1:
        owner.start()  # where the epoch stays over an end, the next owner ends it
    joined.send(at.topic, b"late", partition=0)
    with pytest.raises(ProducerFenced):
        joined.flush()
    assert values_of(cluster, at) == [b"in time"]


@proves("F3")
def test_our_broker_takes_nothing_from_the_answer_to_the_end_on(tidelog_broker: TestBroker, topic: str) -> None:
    with Cluster(tidelog_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        tidelog_broker.create_topic(topic)
        at = TopicPartition(topic, 0)
        owner = Transactions(cluster, "ending")
        owner.start()
        for _ in range(10):
            owner.begin()
            joined = join(cluster, owner.hand_over())
            joined.send(topic, b"in time", partition=0)
            joined.flush()
            owner.commit()
            joined.send(topic, b"late", partition=0)
            with pytest.raises(ProducerFenced):
                joined.flush()
        assert values_of(cluster, at) == [b"in time"] * 10


@proves("F3", "T10")
def test_in_version_1_what_the_owner_has_written_to_is_not_handed_over(cluster: Cluster, at: TopicPartition) -> None:
    """Sequences of the two would run into each other, and a batch be taken for one that is there already."""
    owner = Transactions(cluster, f"id-{at.topic}", version=1)
    first = owner.start()
    owner.begin()
    owner.producer.send(at.topic, b"own", partition=0)
    owner.producer.flush()
    with pytest.raises(UsageError, match=r"right after begin\(\)"):
        owner.hand_over()
    owner.commit()
    owner.begin()
    assert owner.hand_over().producer_epoch == first.producer_epoch + 1
