"""Where the last N records of a partition begin. Offsets are no count of records: markers of transactions have one
each, and what was aborted or compacted away leaves gaps.

From the end backwards, stretch by stretch, each read once: a stretch is as many offsets as records are missing, and
never a tiny one, so that a topic with a marker behind each record takes two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError
from tidelog.wire.error_code import ErrorCode

STRETCH_MIN = 64  # offsets


def starts_of_last(
    cluster: Cluster,
    count: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """By partition, between where it starts and ends. With `committed`, `ends` are the last stable offsets."""
    consumer = Consumer(cluster, read_committed=committed)
    return {at: _start(consumer, at, count, starts[at], end) for at, end in ends.items()}


def _start(consumer: Consumer, at: TopicPartition, missing: int, start: int, end: int) -> int:
    """Stretches grow: behind a record that counts may lie millions that do not."""
    stretch = max(missing, STRETCH_MIN)
    while missing > 0 and end > start:
        if end - start <= missing:
            return start
        begin = max(start, end - stretch)
        found = _offsets(consumer, at, begin, end, missing)
        if found is None:
            return end  # retention has passed it by: what is left begins further on
        if len(found) >= missing:
            return found[0]
        missing -= len(found)
        end, stretch = begin, 2 * stretch
    return end


def _offsets(consumer: Consumer, at: TopicPartition, begin: int, end: int, most: int) -> deque[int] | None:
    """Of the last records between; None where the log begins behind `begin` by now."""
    consumer.assign({at: begin})
    found = deque[int](maxlen=most)
    while consumer.positions[at] < end:
        try:
            fetched = consumer.fetch()
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None
        found += [row.offset for one in fetched for row in one.rows() if row.offset < end]
    return found
