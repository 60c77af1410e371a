"""Offsets of a micro-batch cut into ranges, one a task, in the proportions of Spark's Kafka connector. Pure.

Rules:
- A range has offsets from `start` up to and without `end`; empty ones are left out.
- Without `min_partitions` and `max_records` a partition is a range. `max_records` cuts first; where there are then
  still fewer than `min_partitions`, the larger ones are cut in proportion to their share of all offsets. So there are
  about as many as asked for, and sometimes a few more or fewer.
- The same offsets are always cut in the same way: a replayed micro-batch has the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.wire.field import ZERO_UUID


class OffsetRange(NamedTuple):
    at: TopicPartition
    start: int
    end: int
    topic_id: bytes = ZERO_UUID  # of the topic that was meant, where brokers tell
    token: str = ""  # for the task that is to say its query's name (`reporting.py`)

    @property
    def size(self) -> int:
        """Offsets, not records: some have none, after compaction or a transaction's end."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.at} from {self.start} up to {self.end}"


def cut(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Of the partitions in both; those with nothing to read are left out."""
    whole = [OffsetRange(at, start[at], end[at]) for at in sorted(end) if at in start and start[at] < end[at]]
    ranges = whole
    if max_records is not None:
        ranges = [piece for one in whole for piece in _pieces(one, -(-one.size // max_records))]
    if min_partitions is not None and len(ranges) < min_partitions:
        ranges = _spread(ranges, min_partitions)
    return ranges


def _spread(ranges: list[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Small ranges stay whole, and their offsets do not count when the large ones are cut."""
    total = sum(one.size for one in ranges)
    small = {one for one in ranges if _share(one.size, total, wanted) == 1}
    large_total = total - sum(one.size for one in small)
    large_wanted = max(wanted - len(small), 1)
    return [
        piece
        for one in ranges
        for piece in _pieces(one, 1 if one in small else _share(one.size, large_total, large_wanted))
    ]


def _share(size: int, total: int, wanted: int) -> int:
    """Half rounds up."""
    return max((2 * size * wanted + total) // (2 * total), 1)


def _pieces(one: OffsetRange, count: int) -> Iterable[OffsetRange]:
    start = one.start
    for left in range(count, 0, -1):
        end = start + (one.end - start) // left
        if end > start:
            yield OffsetRange(one.at, start, end)
        start = end
