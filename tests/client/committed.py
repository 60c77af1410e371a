"""What a reader of committed records sees, up to the present end of a partition."""

from __future__ import annotations

import time

from contract import TIMEOUT_S
from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import LATEST, list_offsets
from tidelog.record.columns import Row


def rows_of(cluster: Cluster, at: TopicPartition, *, read_committed: bool = True) -> list[Row]:
    """Waits until nothing is open before the end."""
    end = list_offsets(cluster, {at: LATEST})[at].offset
    consumer = Consumer(cluster, max_wait_ms=100, read_committed=read_committed)
    consumer.assign({at: 0})
    rows: list[Row] = []
    deadline = time.monotonic() + TIMEOUT_S
    while consumer.positions[at] < end:
        assert time.monotonic() < deadline, f"{at} is held up at {consumer.positions[at]} of {end}"
        rows += [row for fetched in consumer.fetch() for row in fetched.rows()]
    return rows


def values_of(cluster: Cluster, at: TopicPartition, *, read_committed: bool = True) -> list[bytes | None]:
    return [row.value for row in rows_of(cluster, at, read_committed=read_committed)]
