"""The runs of records in a span, as the codec decodes them: fetched ahead, a few megabytes at a time.

Rules:
- The first fetch is small and alone, for whoever wants ten rows; those after it are large and travel while rows are
  decoded. What is held is one answer and what DuckDB has not taken of it.
- Each scan has its own connection: two scans of one question run at a time, and a cluster belongs to one thread.
- What retention has deleted since the span was found is passed over with a warning. A topic that is deleted, or made
  anew, fails the question: the rest would be of another topic.
"""

from __future__ import annotations

import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import MAX_BYTES, MAX_PARTITION_BYTES, Consumer, Fetched
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.errors import BrokerError, DataLoss, Disconnected
from tidelog.record.columns import Columns
from tidelog.sql.span import Span
from tidelog.wire.error_code import ErrorCode

Connect = Callable[[], Cluster]

FIRST_PARTITION_BYTES = 64 << 10
FIRST_BYTES = 1 << 20


class Run(NamedTuple):
    """Rows `first` to `first + length` of what was decoded at once; all of one partition."""

    at: TopicPartition
    columns: Columns
    first: int
    length: int


def read_span(connect: Connect, span: Span, *, committed: bool = True) -> Iterator[Run]:
    if span.is_empty:
        return
    with connect() as cluster:
        consumer = Consumer(
            cluster, read_committed=committed, max_bytes=FIRST_BYTES, max_partition_bytes=FIRST_PARTITION_BYTES
        )
        consumer.assign(span.starts)
        quiet_since = time.monotonic()
        while consumer.positions:
            came = fetch(consumer, span)
            for fetched in came:
                yield from runs_of(fetched, span.ends[fetched.at])
            if came:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > cluster.timeout_s:
                waiting = ", ".join(f"{at} at {offset}" for at, offset in consumer.positions.items())
                raise Disconnected(f"no record came for {cluster.timeout_s:g} s ({waiting}); is the broker well?")
            left = {at: offset for at, offset in consumer.positions.items() if offset < span.ends[at]}
            consumer.assign(left)
            consumer.prefetch, consumer.max_bytes, consumer.max_partition_bytes = True, MAX_BYTES, MAX_PARTITION_BYTES


def runs_of(fetched: Fetched, end: int | None = None) -> Iterator[Run]:
    """What is visible, from the offset that was asked for up to the end."""
    for columns in fetched.columns():
        first = bisect_left(columns.offsets, fetched.offset)
        last = columns.count if end is None else bisect_left(columns.offsets, end)
        if first < last:
            yield Run(fetched.at, columns, first, last - first)


def fetch(consumer: Consumer, span: Span) -> list[Fetched]:
    try:
        came = consumer.fetch()
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        _pass_over(consumer, error)
        return []
    for one in came:
        if one.topic_id != span.topic_id:
            raise DataLoss(f"topic {span.topic} was deleted and created again while it was read; ask again")
    return came


def _pass_over(consumer: Consumer, error: BrokerError) -> None:
    starts = list_offsets(consumer.cluster, dict.fromkeys(consumer.positions, EARLIEST))
    passed = {at: found.offset for at, found in starts.items() if found.offset > consumer.positions[at]}
    if not passed:
        raise error
    for at, start in passed.items():
        gone = start - consumer.positions[at]
        warnings.warn(
            f"{at} begins at offset {start} now: {gone} offsets were deleted before they were read", stacklevel=2
        )
        consumer.seek(at, start)
