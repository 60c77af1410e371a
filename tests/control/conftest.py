"""The brokers of the contract."""

from __future__ import annotations

from contract import broker, cluster, group, kafka, topic, version_1_kafka

__all__ = ["broker", "cluster", "group", "kafka", "topic", "version_1_kafka"]
