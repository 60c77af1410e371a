"""Groups: what they committed, who is in them, how far they lag; moved and deleted only when nobody is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer as ForeignConsumer

import tidelog
from against.patience import eventually
from contract import Broker
from proving import proves
from tidelog.client.address import parse_address
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.connection import Connection
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer
from tidelog.control import lag
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

PROTOCOLS = ["classic", "consumer"]


@contextmanager
def member(broker: Broker, group: str, topic: str, protocol: str) -> Iterator[ForeignConsumer]:
    """A foreign consumer in the group, with partitions assigned to it."""
    consumer = ForeignConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) or consumer.assignment())
    try:
        yield consumer
    finally:
        consumer.close()


def fill(cluster: Cluster, topic: str, partitions: int, each: int) -> list[TopicPartition]:
    topics.create(cluster, topic, partitions=partitions)
    with Producer(cluster) as producer:
        for number in range(partitions * each):
            producer.send(topic, b"%d" % number, partition=number % partitions)
    return [TopicPartition(topic, index) for index in range(partitions)]


@proves("T7", "T10")
def test_what_is_committed_for_an_empty_group_is_kept_and_lag_follows(cluster: Cluster, topic: str, group: str) -> None:
    first, second = fill(cluster, topic, 2, each=10)
    assert groups.committed(cluster, group) == {}
    groups.commit(cluster, group, {first: 4, second: 10}, metadata="note")
    assert groups.committed(cluster, group)[first].metadata == "note"
    assert {at: one.offset for at, one in groups.committed(cluster, group).items()} == {first: 4, second: 10}
    assert [(one.at, one.committed, one.end, one.records) for one in lag.of_group(cluster, group)] == [
        (first, 4, 10, 6),
        (second, 10, 10, 0),
    ]
    assert [one.state for one in groups.list_all(cluster) if one.group == group] == ["Empty"]
    groups.delete_offsets(cluster, group, [first])
    assert list(groups.committed(cluster, group)) == [second]


@proves("T7", "T10")
def test_lag_of_a_deleted_topic_is_unknown(cluster: Cluster, topic: str, group: str) -> None:
    (at,) = fill(cluster, topic, 1, each=3)
    kept = TopicPartition(f"{topic}-kept", 0)
    fill(cluster, kept.topic, 1, each=3)
    groups.commit(cluster, group, {at: 1, kept: 1})
    topics.delete(cluster, topic)
    left = [one for one in lag.of_group(cluster, group) if one.at == kept]
    assert [one.records for one in left] == [2]
    gone = [one for one in lag.of_group(cluster, group) if one.at == at]
    assert all(one.end is None and one.records is None for one in gone)


@proves("T7", "T10")
def test_a_group_is_deleted_once(cluster: Cluster, topic: str, group: str) -> None:
    (at,) = fill(cluster, topic, 1, each=1)
    groups.commit(cluster, group, {at: 1})
    groups.delete(cluster, group)
    assert groups.committed(cluster, group) == {}
    for attempt in (groups.delete, groups.describe):
        with pytest.raises(BrokerError) as caught:
            attempt(cluster, group)
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


@proves("T3", "T7", "T10")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_are_described_under_both_protocols(
    broker: Broker, cluster: Cluster, topic: str, group: str, protocol: str
) -> None:
    partitions = fill(cluster, topic, 2, each=5)
    with member(broker, group, topic, protocol):
        described = eventually(
            lambda: groups.describe(cluster, group), lambda seen: any(one.assigned for one in seen.members)
        )
        assert described.kind == protocol
        (only,) = described.members
        assert only.client_id == "reader"
        assert sorted(only.assigned) == partitions
        assert [one.kind for one in groups.list_all(cluster) if one.group == group] == [protocol]


@proves("T7", "T10")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_active_group_is_neither_moved_nor_deleted(
    broker: Broker, cluster: Cluster, topic: str, group: str, protocol: str
) -> None:
    (at,) = fill(cluster, topic, 1, each=5)
    with member(broker, group, topic, protocol):
        with pytest.raises(BrokerError) as moved:
            groups.commit(cluster, group, {at: 0})
        assert moved.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
        with pytest.raises(BrokerError) as deleted:
            groups.delete(cluster, group)
        assert deleted.value.code == ErrorCode.NON_EMPTY_GROUP
    eventually(lambda: groups.describe(cluster, group), lambda seen: not seen.members)
    groups.commit(cluster, group, {at: 0})
    assert groups.committed(cluster, group)[at].offset == 0


@proves("T3", "T7")
def test_a_member_that_says_nothing_more_is_put_out_when_its_session_is_over() -> None:
    """Its connection stays open, and nobody else asks anything of its group."""
    with (
        tidelog.Broker(settings={"group.min.session.timeout.ms": "100"}) as broker,
        Connection.open(parse_address(broker.bootstrap)) as silent,
        Cluster(broker.bootstrap) as cluster,
    ):
        request = JoinGroupRequest(
            group_id="workers",
            session_timeout_ms=500,
            rebalance_timeout_ms=500,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = silent.call(request, JoinGroupResponse, version=3)
        assert joined.error_code == 0 and joined.member_id
        eventually(lambda: groups.describe(cluster, "workers").members, lambda members: members == ())
