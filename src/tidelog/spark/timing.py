"""When the records at some offsets happened, asked of the brokers, for partitions that catch up together.

What a record's time is, `value_times.py` says. One that has none holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError
from tidelog.spark.offsets import Offsets
from tidelog.spark.value_times import TimeOf
from tidelog.wire.error_code import ErrorCode

ONE_BATCH = 1  # bytes: a broker gives a whole batch all the same
FETCHES = 16  # that may bring nothing visible before a place counts as one without a time
MAX_WAIT_MS = 100


def times_at(
    cluster: Cluster, places: Iterable[tuple[TopicPartition, int]], time_of: TimeOf, *, read_committed: bool
) -> dict[TopicPartition, int | None]:
    """The time of the first record at or after each offset, one a partition; None where there is none any more."""
    wanted = dict(places)
    try:
        return _times_at(cluster, wanted, time_of, read_committed)
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
    if len(wanted) == 1:
        return dict.fromkeys(wanted)
    return {
        at: times_at(cluster, [(at, offset)], time_of, read_committed=read_committed)[at]
        for at, offset in wanted.items()
    }


def _times_at(
    cluster: Cluster, wanted: Offsets, time_of: TimeOf, read_committed: bool
) -> dict[TopicPartition, int | None]:
    found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
    left = set(wanted)
    consumer = Consumer(cluster, max_wait_ms=MAX_WAIT_MS, max_partition_bytes=ONE_BATCH, read_committed=read_committed)
    consumer.assign(wanted)
    for _ in range(FETCHES):
        came = consumer.fetch()
        for fetched in came:
            if (row := next(fetched.rows(), None)) is not None:
                found[fetched.at] = time_of(row)
                left.discard(fetched.at)
        if not (left and came):
            break
        consumer.assign({at: consumer.positions[at] for at in left})
    return found
