"""A reader whose records are gone is told so, also when their offsets are in use again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from against.patience import eventually
from proving import proves
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.testing.broker import TestBroker

AT = TopicPartition("readings", 0)


def log_file(broker: TestBroker) -> Path:
    (log,) = [path for path in broker.data.glob("*-0/*.log") if b"old 0" in path.read_bytes()]
    return log


def lose_the_end(broker: TestBroker, kept: bytes) -> None:
    """What a power cut may do to a topic that is kept in memory: its file is as it was some records ago. So is what is
    known of its end elsewhere. On a busy machine both may have been recorded since: then a loss would be damage.
    """
    log_file(broker).write_bytes(kept)
    (broker.data / "ends").unlink(missing_ok=True)


def prepared(broker: TestBroker, cluster: Cluster) -> tuple[Consumer, bytes]:
    """A topic kept in memory with six records, all of them read, and its file when it had three."""
    broker.create_topic(AT.topic, configs={"tidelog.durability": "memory"})
    broker.produce(AT.topic, [f"old {number}" for number in range(3)])
    kept = log_file(broker).read_bytes()
    broker.produce(AT.topic, [f"old {number}" for number in range(3, 6)])
    consumer = Consumer(cluster, max_wait_ms=100)
    consumer.assign({AT: 0})
    eventually(lambda: consumer.fetch() and consumer.positions[AT], lambda position: position == 6)
    return consumer, kept


@proves("T6", "T1")
def test_offsets_used_again_after_a_loss_are_noticed(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        consumer, kept = prepared(tidelog_broker, cluster)
        tidelog_broker.kill()
        lose_the_end(tidelog_broker, kept)
        tidelog_broker.start()
        tidelog_broker.produce(AT.topic, [f"new {number}" for number in range(10)])
        with pytest.raises(
            BrokerError, match="in leader epoch 0, which ended at 3; records that were read are gone"
        ) as said:
            consumer.fetch()
        assert said.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek(AT, 3)
        assert [row.value for one in consumer.fetch() for row in one.rows()] == [b"new %d" % n for n in range(10)]


@proves("T6", "T1")
def test_an_unclean_stop_that_lost_nothing_is_not_noticed(tidelog_broker: TestBroker) -> None:
    with Cluster(tidelog_broker.bootstrap) as cluster:
        consumer, _ = prepared(tidelog_broker, cluster)
        tidelog_broker.kill()
        tidelog_broker.start()
        tidelog_broker.produce(AT.topic, ["next"])
        assert [row.value for one in consumer.fetch() for row in one.rows()] == [b"next"]
        cluster.forget()
        assert cluster.topic(AT.topic).partitions[0].leader_epoch == 1
