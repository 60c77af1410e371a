"""What the broker tells of itself: true figures, seldom, and in a topic that does not grow."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import tidelog
from against.patience import eventually
from broker.topics.serving import Served
from proving import proves
from tidelog.broker.status import SEGMENT_BYTES
from tidelog.broker.topics import STATUS_TOPIC
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.client.producer import Producer
from tidelog.errors import BrokerError
from tidelog.log.compaction.compactor import Turn
from tidelog.log.latency import BOUNDS_S, Histogram

AT = TopicPartition(STATUS_TOPIC.name, 0)
PATIENCE_S = 180.0


def records_of(served: Served) -> int:
    partition = served.broker.partition(STATUS_TOPIC.name, 0)
    assert partition is not None
    return partition.log.end_offset


@proves("metrics")
def test_a_broker_tells_of_itself_only_when_there_is_news(tmp_path: Path) -> None:
    served = Served(tmp_path, {})
    served.broker.status.report()
    assert records_of(served) == 1
    served.broker.status.report()
    assert records_of(served) == 1
    served.broker.counters.malformed += 1
    served.broker.status.report()
    assert records_of(served) == 2
    served.broker.stop()


@proves("metrics")
def test_the_topic_stays_small(tmp_path: Path) -> None:
    served = Served(tmp_path, {})
    partition = served.broker.partition(STATUS_TOPIC.name, 0)
    assert partition is not None
    while partition.log.size_bytes < 4 * SEGMENT_BYTES:
        served.broker.counters.opened += 1
        served.broker.status.report()
    while partition.log.high_watermark < partition.log.end_offset:
        served.turn()
    turns: list[Turn] = []
    while not turns or turns[-1].more:
        told = len(turns)
        partition.log.compact(served.broker.now().wall_ms, 4 * SEGMENT_BYTES, turns.append, 1 << 20)
        while len(turns) == told:
            served.turn()
    assert partition.log.size_bytes < 2 * SEGMENT_BYTES
    served.broker.stop()


@proves("metrics")
def test_a_commit_is_counted_where_it_belongs() -> None:
    commits = Histogram()
    for seconds in (0.0, BOUNDS_S[0], 0.003, 99.0):
        commits.add(seconds)
    assert commits.counts[0] == 2
    assert commits.counts[BOUNDS_S.index(0.005)] == 1
    assert commits.counts[-1] == 1
    assert sum(commits.counts) == 4 and commits.sum_s > 99


def last_told(cluster: Cluster) -> dict[str, Any]:
    """What the newest record says; waits for the first one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        end = list_offsets(cluster, {AT: LATEST})[AT].offset
        if end > list_offsets(cluster, {AT: EARLIEST})[AT].offset:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    consumer = Consumer(cluster)
    consumer.assign({AT: end - 1})
    rows = [row for fetched in consumer.fetch() for row in fetched.rows()]
    assert rows[-1].key is not None and rows[-1].value is not None
    assert json.loads(rows[-1].key) == {"v": 1, "kind": "broker", "name": "1"}
    told: dict[str, Any] = json.loads(rows[-1].value)
    return told


@proves("metrics")
def test_figures_of_a_broker_that_is_used_are_true() -> None:
    with tidelog.Broker() as broker, Cluster(broker.bootstrap) as cluster:
        with Producer(cluster) as producer:
            for number in range(10):
                producer.send("topic", b"x" * 1000, key=str(number).encode())
            producer.flush()
            producer.send("__tidelog.topics", b"x")
            with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
                producer.flush()
        told = eventually(lambda: last_told(cluster), lambda told: bool(told["refused_batches"]))
    assert told["requests"]["produce"] >= 1
    assert told["refused_batches"] == {"INVALID_TOPIC_EXCEPTION": 1}
    assert told["request_bytes"] > 10_000
    assert told["sent_bytes"] > 0
    assert told["connections"] >= 1 and told["connections_opened"] >= told["connections"]
    assert sum(told["commits"]["counts"]) >= 1
    assert len(told["commits"]["counts"]) == len(told["commits"]["le_s"]) + 1
    assert told["partitions_offline"] == told["holes"] == told["faults"] == told["malformed"] == 0
    assert told["disk"]["free_bytes"] > 0
    assert told["started_ms"] <= told["at_ms"]
