"""Epochs that are used up, a cluster of an older transaction version: what an owner goes on with."""

from __future__ import annotations

import pytest

from against.apache_kafka import ApacheKafka
from against.test_epochs import LAST_EPOCH, use_up
from client.committed import values_of
from contract import TIMEOUT_S
from proving import proves
from tidelog.client.admin import topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.transactions import Transactions
from tidelog.errors import ProducerFenced

pytestmark = pytest.mark.external


@proves("eo.5", "F3", "T10")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [2, 1], ids=["v2", "v1"])
def test_an_owner_whose_epochs_are_used_up_goes_on_with_another_producer_id(
    broker: ApacheKafka, cluster: Cluster, topic: str, version: int
) -> None:
    topics.create(cluster, topic, partitions=1)
    at = TopicPartition(topic, 0)
    use_up(broker, topic, LAST_EPOCH - 4)
    owner = Transactions(cluster, topic, version=version)
    zombie = Transactions(cluster, topic, version=version)
    zombie.start()
    zombie.begin()
    zombie.producer.send(topic, b"zombie's", partition=0)
    zombie.producer.flush()
    owner.start()
    holders = []
    for number in range(8):
        if version == 1:
            owner.start()
        holders.append((owner.identity.producer_id, owner.identity.producer_epoch))
        with owner.transaction() as producer:
            producer.send(topic, b"%d" % number, partition=0)
            producer.flush()
            producer.send(topic, b"%d" % number, partition=0)
    ids = list(dict.fromkeys(producer_id for producer_id, _ in holders))
    assert len(ids) == 2
    epochs = [[epoch for producer_id, epoch in holders if producer_id == one] for one in ids]
    assert epochs[0][-1] <= LAST_EPOCH and epochs[0] == list(range(epochs[0][0], epochs[0][0] + len(epochs[0])))
    assert epochs[1] == list(range(len(epochs[1])))
    with pytest.raises(ProducerFenced):
        zombie.commit()
    owner.start()
    assert values_of(cluster, at) == [b"%d" % number for number in range(8) for _ in range(2)]


@proves("F2", "F3", "T10")
@pytest.mark.timeout(600)
def test_a_cluster_that_has_finalized_version_1_is_written_to_by_version_1(
    version_1_kafka: ApacheKafka, topic: str
) -> None:
    with Cluster(version_1_kafka.bootstrap, timeout_s=TIMEOUT_S) as cluster:
        topics.create(cluster, topic, partitions=1)
        with Transactions(cluster, topic) as owner:
            first = owner.identity
            for number in range(3):
                with owner.transaction() as producer:
                    producer.send(topic, b"%d" % number, partition=0)
            assert owner.identity == first and first.version == 1
        assert values_of(cluster, TopicPartition(topic, 0)) == [b"0", b"1", b"2"]
