"""Excision as others see it: a foreign admin client orders it, foreign consumers pass it; Apache Kafka has none."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from against.brokers import Broker
from against.confluent import SECONDS, producer_of, read_partition
from against.rebalancing import create
from against.test_confluent_kafka_admin import admin_of
from proving import proves
from tidelog.client.admin import excisions
from tidelog.client.cluster import Cluster
from tidelog.errors import UsageError


@proves("E6")
def test_single_records_are_taken_out_on_tidelog_and_refused_on_apache_kafka(broker: Broker, topic: str) -> None:
    create(broker.bootstrap, topic, 1)
    producer = producer_of(broker)
    for number in range(5):
        producer.produce(topic, b"value %d" % number, partition=0)
        producer.flush(SECONDS)
    with Cluster(broker.bootstrap) as cluster:
        if not cluster.is_tidelog():
            with pytest.raises(UsageError, match="Apache Kafka cannot take single records out; delete all records up"):
                excisions.excise(cluster, topic, {0: [(2, 3)]}, "why")
            return
    order = ConfigEntry("tidelog.excise", "0:2-3 why", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[order])
    admin = admin_of(broker)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(SECONDS)
    found = read_partition(broker, topic, 3)
    assert [(one.offset(), one.value()) for one in found] == [(0, b"value 0"), (1, b"value 1"), (4, b"value 4")]
