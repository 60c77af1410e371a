"""Rows of topics: how every part reads what was written before it came, and follows what is written from then on.

    span        where a partition begins and ends by now; None where there is no such topic
    read        the rows between two offsets of each partition, as they come
    read_all    the rows that one partition has by now; none where there is no such topic
    news        what one fetch brings from positions on, which it moves
    follow      `news` again and again, until a deadline

Rules:
- An end is exclusive, and is taken once, before reading: what is written meanwhile is for the next look.
- With `committed`, rows of transactions that are open or were aborted are left out, and an open one holds up what lies
  behind it. So reading up to an end waits for it: for `within_s` without any progress, then `OpenTransaction` says so.
- `news` and `follow` fetch once at least, also when their time is over: a fetch is where the broker says whether this
  user may read. Positions have moved past all rows of a fetch when its first one is handed out.
- Rows of one partition come in the order of their offsets; of several, as fetches bring them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.client.cluster import UNKNOWN_TOPIC, Cluster
from tidelog.client.consumer import MAX_WAIT_MS, Consumer
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.errors import BrokerError, OpenTransaction
from tidelog.record.columns import Row


class Span(NamedTuple):
    start: int
    end: int


def span(cluster: Cluster, at: TopicPartition, *, committed: bool = False) -> Span | None:
    """With `committed` the end is where the oldest open transaction begins."""
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    try:
        end = list_offsets(cluster, {at: LATEST}, isolation=isolation)[at].offset
        return Span(list_offsets(cluster, {at: EARLIEST})[at].offset, end)
    except BrokerError as error:
        if error.code in UNKNOWN_TOPIC:
            return None
        raise


def read(
    cluster: Cluster,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    committed: bool = True,
    within_s: float | None = None,
) -> Iterator[tuple[TopicPartition, Row]]:
    """Every row from `begins` up to and without `ends`, which has the same partitions."""
    patience_s = cluster.timeout_s if within_s is None else within_s
    consumer = Consumer(cluster, read_committed=committed)
    left = {at: offset for at, offset in begins.items() if offset < ends[at]}
    deadline = time.monotonic() + patience_s
    while left:
        consumer.assign(left)
        consumer.max_wait_ms = max(1, min(MAX_WAIT_MS, int((deadline - time.monotonic()) * 1000)))
        for fetched in consumer.fetch():
            end = ends[fetched.at]
            yield from ((fetched.at, row) for row in fetched.rows() if row.offset < end)
        if consumer.positions != left:
            deadline = time.monotonic() + patience_s  # much takes long, and is not an open transaction
        left = {at: offset for at, offset in consumer.positions.items() if offset < ends[at]}
        if left and time.monotonic() > deadline:
            at = min(left)
            raise OpenTransaction(
                f"{at} has not been readable up to offset {ends[at]} for {patience_s:g} s, only up to {left[at]}:"
                " a transaction is open there; `tidelog transactions` shows which"
            )


def read_all(
    cluster: Cluster, at: TopicPartition, *, committed: bool = True, within_s: float | None = None
) -> Iterator[Row]:
    """With `committed` somebody's open transaction is waited for, as in `read`."""
    there = span(cluster, at)
    if there is None:
        return iter(())
    rows = read(cluster, {at: there.start}, {at: there.end}, committed=committed, within_s=within_s)
    return (row for _, row in rows)


def news(
    cluster: Cluster, positions: dict[TopicPartition, int], *, within_s: float = 0.0
) -> list[tuple[TopicPartition, Row]]:
    """Committed rows; empty where none came in time."""
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign(positions)
    return list(_next(consumer, positions, within_s))


def follow(
    cluster: Cluster, positions: dict[TopicPartition, int], deadline: float
) -> Iterator[tuple[TopicPartition, Row]]:
    """Committed rows as they come. `deadline` is by the monotonic clock."""
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign(positions)
    left_s = 1.0
    while left_s > 0:
        left_s = deadline - time.monotonic()
        yield from _next(consumer, positions, left_s)


def _next(
    consumer: Consumer, positions: dict[TopicPartition, int], within_s: float
) -> Iterator[tuple[TopicPartition, Row]]:
    consumer.max_wait_ms = max(0, min(MAX_WAIT_MS, int(within_s * 1000)))
    fetched = consumer.fetch()
    positions.update(consumer.positions)
    return ((one.at, row) for one in fetched for row in one.rows())
