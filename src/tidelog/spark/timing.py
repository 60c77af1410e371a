"""When a record happened, for partitions that catch up together: its timestamp, or a field of its JSON value.

A field is named with dots (`event.at`) and is a number of milliseconds since 1970 or a time as ISO 8601 writes it;
without a zone it is UTC. A record that has no such field, or none that is a time, has no time: it holds nobody back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.client.cluster import Cluster
from tidelog.client.consumer import Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.errors import BrokerError
from tidelog.record.columns import Row
from tidelog.spark.offsets import Offsets
from tidelog.spark.options import RECORD_TIME
from tidelog.wire.error_code import ErrorCode

ONE_BATCH = 1  # bytes: a broker gives a whole batch all the same
FETCHES = 16  # that may bring nothing visible before a place counts as one without a time
MAX_WAIT_MS = 100


def times_at(
    cluster: Cluster, places: Iterable[tuple[TopicPartition, int]], align_by: str, *, read_committed: bool
) -> dict[TopicPartition, int | None]:
    """The time of the first record at or after each offset, one a partition; None where there is none any more."""
    wanted = dict(places)
    try:
        return _times_at(cluster, wanted, align_by, read_committed)
    except BrokerError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
    if len(wanted) == 1:
        return dict.fromkeys(wanted)
    return {
        at: times_at(cluster, [(at, offset)], align_by, read_committed=read_committed)[at]
        for at, offset in wanted.items()
    }


def _times_at(
    cluster: Cluster, wanted: Offsets, align_by: str, read_committed: bool
) -> dict[TopicPartition, int | None]:
    found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
    left = set(wanted)
    consumer = Consumer(cluster, max_wait_ms=MAX_WAIT_MS, max_partition_bytes=ONE_BATCH, read_committed=read_committed)
    consumer.assign(wanted)
    for _ in range(FETCHES):
        came = consumer.fetch()
        for fetched in came:
            if (row := next(fetched.rows(), None)) is not None:
                found[fetched.at] = time_of(row, align_by)
                left.discard(fetched.at)
        if not (left and came):
            break
        consumer.assign({at: consumer.positions[at] for at in left})
    return found


def time_of(row: Row, align_by: str) -> int | None:
    return row.timestamp if align_by == RECORD_TIME else _time_in(row.value, align_by)


def _time_in(value: bytes | None, path: str) -> int | None:
    import json

    try:
        found: Any = json.loads(value or b"null")
    except ValueError:
        return None
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str):
        return _iso(found)
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _iso(text: str) -> int | None:
    from datetime import UTC, datetime

    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1000)
