"""Where the last N records of a partition begin. Offsets are not a count of records: markers of transactions have one
each, and what was aborted or compacted away leaves gaps.

From the end backwards, stretch by stretch, each read once: a stretch is as many offsets as records are missing, and
never a tiny one, so that a topic with a marker behind each record takes two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.control.reading import read
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
    return {at: _start(cluster, at, count, starts[at], end, committed) for at, end in ends.items()}


def _start(cluster: Cluster, at: TopicPartition, missing: int, start: int, end: int, committed: bool) -> int:
    """Stretches grow: behind a record that counts may lie millions that do not."""
    stretch = max(missing, STRETCH_MIN)
    while missing > 0 and end > start:
        if end - start <= missing:
            return start
        begin = max(start, end - stretch)
        found = _offsets(cluster, at, begin, end, missing, committed)
        if found is None:
            return end  # retention has passed it by: what is left begins further on
        if len(found) >= missing:
            return found[0]
        missing -= len(found)
        end, stretch = begin, 2 * stretch
    return end


def _offsets(
    cluster: Cluster, at: TopicPartition, begin: int, end: int, most: int, committed: bool
) -> deque[int] | None:
    """Of the last records between; None where the log begins behind `begin` by now."""
    rows = read(cluster, {at: begin}, {at: end}, committed=committed)
    try:
        return deque((row.offset for _, row in rows), maxlen=most)
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return None
