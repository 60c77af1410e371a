"""The gateway beside Apache Kafka: what Kafka's own APIs tell is there, what only Tidelog tells is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from against.apache_kafka import ApacheKafka
from contract import group, kafka, topic
from gateway.serving import GatewayProcess
from proving import proves
from tidelog.client.admin import groups, topics
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.producer import Producer

__all__ = ["group", "kafka", "topic"]


@proves("T10", "metrics")
@pytest.mark.external
@pytest.mark.story
def test_metrics_of_apache_kafka(kafka: ApacheKafka, topic: str, group: str, tmp_path: Path) -> None:
    with Cluster(kafka.bootstrap) as cluster:
        topics.create(cluster, topic)
        with Producer(cluster) as producer:
            for _ in range(5):
                producer.send(topic, b"value", partition=0)
        groups.commit(cluster, group, {TopicPartition(topic, 0): 2})
    beside = GatewayProcess(kafka.bootstrap, tmp_path / "log")
    assert beside.client("GET", "/readyz").status == 200
    lines = beside.client("GET", "/metrics").body.decode().splitlines()
    place = f'topic="{topic}",partition="0"'
    assert f"tidelog_partition_end_offset{{{place}}} 5" in lines
    assert f'tidelog_group_lag_records{{group="{group}",{place}}} 3' in lines
    assert 'tidelog_scrape_failed{part="brokers"} 0' in lines
    assert not [line for line in lines if line.startswith("tidelog_broker_")]
    assert beside.stop() == 0
