"""The two brokers of the contract, and the settings that both get: Kafka's names, short times so that crashes show
soon.

Sessions are long, for whoever takes a member that is alive for dead tests the machine: beside a Java machine that warms
up on two cores, it may not be heard of for seconds. Only who is to crash has a session whose end can be waited for.
"""

from __future__ import annotations

from against.apache_kafka import ApacheKafka
from against.tidelog_process import TidelogProcess

Broker = ApacheKafka | TidelogProcess

SESSION_MS = 45_000
BRIEF_SESSION_MS = 10_000
HEARTBEAT_MS = 300
BROKER_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
