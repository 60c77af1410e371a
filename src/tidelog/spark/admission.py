"""How far a micro-batch reads: from where it starts and what there is to where it ends. Pure.

Rules:
- `share_out` gives each partition a part of the limit in proportion to what it has to be read, and at least one offset
  where it has any, as Spark's Kafka connector does.
- `waits_for_more` holds a micro-batch back while there is little to read, and for so long only.
- `ceiling` aligns partitions that catch up. Spark's watermark is the maximum over all partitions: when one runs ahead
  of another, rows of the other come late and are dropped. So no record is admitted that is younger than the oldest next
  record of any partition by more than the lateness. A partition at its end has no next record: its last one counts in
  its place, for `idle_after` and no longer.
- The oldest partition always gets on: its next record is never above the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.spark.offsets import Offsets


def share_out(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """`start` has every partition of `latest`. A partition that has lost offsets ends where it now ends."""
    sizes = {at: end - start[at] for at, end in latest.items() if end > start[at]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    return {
        at: start[at] + min(sizes[at], _part(limit, sizes[at], total)) if at in sizes else latest[at] for at in latest
    }


def _part(limit: int, size: int, total: int) -> int:
    """In floating point, as the connector has it, so that micro-batches are the same to the offset."""
    part = limit * (size / total)
    return ceil(part) if part < 1 else int(part)


def waits_for_more(
    least: int,
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    waited_ms: float,
    at_most_ms: int,
) -> bool:
    there = sum(max(end - start[at], 0) for at, end in latest.items())
    return there < least and waited_ms < at_most_ms


class Pace(NamedTuple):
    """Where one partition is in time: at its next record, or at its last where it has been read to its end."""

    timestamp: int | None  # None: it has no time, and holds nobody back
    at_end_ms: float | None = None  # for how long it has been read to its end; None when it has not


def ceiling(paces: Mapping[TopicPartition, Pace], *, lateness_ms: int, idle_after_ms: int) -> int | None:
    """The time that no admitted record may be above; None when nothing holds anything back."""
    holding = [
        pace.timestamp
        for pace in paces.values()
        if pace.timestamp is not None and (pace.at_end_ms is None or pace.at_end_ms < idle_after_ms)
    ]
    return min(holding) + lateness_ms if holding else None


def end_below(highest: int, start: int, end: int, time_at: Callable[[int], int | None]) -> int:
    """Up to where records are not above `highest`, looked for by halves: times go up with offsets, by and large.

    `time_at` gives the time of the first record at or after an offset.
    """

    def above(offset: int) -> bool:
        found = time_at(offset)
        return found is not None and found > highest

    if start >= end or above(start):
        return start
    if not above(end - 1):
        return end
    low, high = start + 1, end  # the answer is from low to high
    while low < high:
        middle = (low + high) // 2
        if above(middle):
            high = middle
        else:
            low = middle + 1
    return low
