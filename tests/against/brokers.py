"""The two brokers of the contract, and the settings that both get: Kafka's names, short times so that crashes show
soon.
"""

from __future__ import annotations

from against.apache_kafka import ApacheKafka
from against.tidelog_process import TidelogProcess

Broker = ApacheKafka | TidelogProcess

BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
