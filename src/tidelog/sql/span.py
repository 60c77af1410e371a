"""Which offsets of a topic a question reads: fixed before the first row, so that every scan of it sees the same ones.

    Bound     where to begin or end, as people say it: earliest, latest, an offset, a time, the last N of each partition
    Limits    what a WHERE says of `offset`, `timestamp` and `partition`; it only makes the span smaller
    Span      first and next offset by partition

Rules:
- The end is what is there, and committed, when the question is asked. A follower has none.
- `end` is not read itself. A time means the first record at or after it, as Kafka finds it, for both bounds.
- Of `timestamp` only a lower limit narrows a span: after the first record of a later time there may be earlier ones.
  DuckDB compares every row that is read, so a span may be too wide and never too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from tidelog.control.last_records import starts_of_last

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.client.cluster import Cluster


class Bound(NamedTuple):
    kind: str  # earliest, latest, offset, time (in milliseconds), last
    number: int = 0


BEGINNING, END = Bound("earliest"), Bound("latest")


@dataclass(frozen=True, slots=True)
class Limits:
    """All None: no limit. `until` is the first offset that is not wanted; `since` a time in milliseconds."""

    first: int | None = None
    until: int | None = None
    since: int | None = None
    partitions: frozenset[int] | None = None


class Options(NamedTuple):
    committed: bool = True
    raw: bool = False
    strict: bool = False


class Span(NamedTuple):
    topic: str
    topic_id: bytes
    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]  # of all in `starts`, and above them

    @property
    def is_empty(self) -> bool:
        return not self.starts


def find_span(
    cluster: Cluster,
    topic: str,
    *,
    start: Bound = BEGINNING,
    end: Bound = END,
    limits: Limits | None = None,
    committed: bool = True,
) -> Span:
    known = cluster.retry(lambda: cluster.topic(topic))
    partitions = [TopicPartition(topic, number) for number in sorted(known.partitions)]
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    limits = limits or Limits()
    if limits.partitions is not None:
        partitions = [at for at in partitions if at.partition in limits.partitions]
    if not partitions:
        return Span(topic, known.topic_id, {}, {})
    lowest = _offsets(cluster, partitions, EARLIEST)
    highest = _offsets(cluster, partitions, LATEST, isolation)
    starts = _resolve(cluster, start, lowest, highest, committed=committed)
    ends = _resolve(cluster, end, lowest, highest, committed=committed)
    if limits.since is not None:
        since = _resolve(cluster, Bound("time", limits.since), lowest, highest, committed=committed)
        starts = {at: max(offset, since[at]) for at, offset in starts.items()}
    for at in partitions:
        starts[at] = max(starts[at], lowest[at], limits.first or 0)
        ends[at] = min(ends[at], highest[at], highest[at] if limits.until is None else limits.until)
    there = [at for at in partitions if starts[at] < ends[at]]
    return Span(topic, known.topic_id, {at: starts[at] for at in there}, {at: ends[at] for at in there})


def find_starts(cluster: Cluster, topic: str, start: Bound, *, committed: bool = True) -> Span:
    """Of every partition, for a follower: without ends."""
    known = cluster.retry(lambda: cluster.topic(topic))
    partitions = [TopicPartition(topic, number) for number in sorted(known.partitions)]
    lowest = _offsets(cluster, partitions, EARLIEST)
    highest = _offsets(cluster, partitions, LATEST, READ_COMMITTED if committed else READ_UNCOMMITTED)
    starts = _resolve(cluster, start, lowest, highest, committed=committed)
    within = {at: min(max(offset, lowest[at]), highest[at]) for at, offset in starts.items()}
    return Span(topic, known.topic_id, within, {})


def _resolve(
    cluster: Cluster,
    bound: Bound,
    lowest: Mapping[TopicPartition, int],
    highest: Mapping[TopicPartition, int],
    *,
    committed: bool,
) -> dict[TopicPartition, int]:
    if bound.kind == "earliest":
        return dict(lowest)
    if bound.kind == "offset":
        return dict.fromkeys(lowest, bound.number)
    if bound.kind == "last":
        return starts_of_last(cluster, bound.number, lowest, highest, committed=committed)
    if bound.kind == "time":
        found = list_offsets(cluster, dict.fromkeys(lowest, max(0, bound.number)))
        return {at: one.offset if one.offset >= 0 else highest[at] for at, one in found.items()}
    return dict(highest)


def _offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], place: int, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    return {
        at: found.offset
        for at, found in list_offsets(cluster, dict.fromkeys(partitions, place), isolation=isolation).items()
    }
