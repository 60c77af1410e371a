"""A cluster: found from any of its addresses, asked again when something moved, and honest when it is not there."""

from __future__ import annotations

from itertools import count, islice
from types import SimpleNamespace

import pytest

from client.faults import BreakingNetwork
from contract import TIMEOUT_S, Broker
from proving import proves
from tidelog.client import cluster as clustering
from tidelog.client.admin import topics
from tidelog.client.backoff import FIRST_S, LONGEST_S, waits
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.refusal import ADVICE, refused
from tidelog.errors import BrokerError, Disconnected
from tidelog.wire.error_code import ErrorCode


@proves("T10")
def test_any_address_of_the_bootstrap_will_do(broker: Broker) -> None:
    with Cluster(f"127.0.0.1:1,{broker.bootstrap}", timeout_s=TIMEOUT_S) as cluster:
        metadata = cluster.ask_metadata(())
        assert [str(node.address) for node in metadata.nodes.values()] == [broker.bootstrap]
        assert metadata.controller in metadata.nodes
        assert cluster.cluster_id


@proves("T10")
def test_when_nobody_answers_every_address_is_named_at_once() -> None:
    """At once: nobody waits for the time-out here, the test's own would be over before."""
    with Cluster("127.0.0.1:1,127.0.0.1:2", timeout_s=3600) as cluster, pytest.raises(Disconnected) as said:
        cluster.retry(lambda: cluster.ask_metadata(None))
    assert "127.0.0.1:1" in str(said.value) and "127.0.0.1:2" in str(said.value)


@proves("T10")
def test_a_lost_connection_is_replaced(broker: Broker) -> None:
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        first = cluster.any_node()
        first.close()
        assert cluster.retry(lambda: cluster.ask_metadata(())).nodes
        assert cluster.any_node() is not first


@proves("T10")
def test_an_operation_outlives_a_network_that_breaks(broker: Broker, topic: str, seed: int) -> None:
    network = BreakingNetwork(seed, rate=0.3)
    with Cluster(broker.bootstrap, timeout_s=TIMEOUT_S, dial=network) as cluster:
        topics.create(cluster, topic, partitions=2)
        network.armed = True
        for _ in range(12):
            cluster.forget()
            assert cluster.partitions(topic) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert {"send", "answer"} <= set(network.broken)


@proves("T10")
def test_a_topic_that_is_not_there_is_said_soon_and_not_made(cluster: Cluster, topic: str) -> None:
    with pytest.raises(
        BrokerError, match=rf"topic '{topic}' was refused with UNKNOWN_TOPIC_OR_PARTITION \(3\)"
    ) as said:
        cluster.partitions(topic)
    assert said.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in topics.names(cluster)


@proves("T10")
def test_a_partition_that_is_not_there_is_named(cluster: Cluster, topic: str) -> None:
    topics.create(cluster, topic, partitions=1)
    with pytest.raises(BrokerError, match=rf"partition {topic}\[7\]"):
        cluster.retry(lambda: cluster.leader(TopicPartition(topic, 7)))


@proves("T10")
def test_retry_gives_up_when_its_time_is_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    clock = count(step=0.01)
    monkeypatch.setattr(clustering, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))

    def attempt() -> None:
        tries.append(1)
        raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this")

    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        cluster.retry(attempt, timeout_s=0.2)
    assert len(tries) > 1


@proves("T10")
def test_retry_does_not_repeat_what_cannot_help(cluster: Cluster) -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise refused(ErrorCode.TOPIC_ALREADY_EXISTS, "this")

    with pytest.raises(BrokerError):
        cluster.retry(attempt)
    assert len(tries) == 1


@proves("T10")
def test_waits_double_up_to_a_bound() -> None:
    first = list(islice(waits(), 12))
    for number, wait in enumerate(first):
        step = min(FIRST_S * 2**number, LONGEST_S)
        assert step / 2 <= wait <= step
    assert first[-1] <= LONGEST_S


@proves("T10")
def test_a_refusal_has_kafkas_name_what_the_broker_said_and_what_to_do() -> None:
    error = refused(ErrorCode.TOPIC_ALREADY_EXISTS, "creating topic 'a'", "Topic 'a' already exists.")
    assert error.code == 36
    assert str(error) == (
        "creating topic 'a' was refused with TOPIC_ALREADY_EXISTS (36): Topic 'a' already exists"
        "; choose another name, or alter the topic"
    )
    assert str(refused(999, "this")) == "this was refused with ERROR_999 (999)"
    assert all((isinstance(code, int) and advice[0].islower()) or advice[0] == "`" for code, advice in ADVICE.items())
