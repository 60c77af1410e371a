"""The two brokers of the contract, and the settings that both get: Kafka's names, short times so that crashes show
soon.

A session lasts as long as Kafka's own minimum: beside a Java machine that warms up on two cores, a member that is alive
may not be heard of for a second or two, and whoever takes it for dead tests the machine.
"""

from __future__ import annotations

from against.apache_kafka import ApacheKafka
from against.tidelog_process import TidelogProcess

Broker = ApacheKafka | TidelogProcess

SESSION_MS = 6_000
HEARTBEAT_MS = 300
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
