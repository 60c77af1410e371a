"""How far groups are behind, in records, bytes and time, and how long retention leaves them; against any broker.

A broker does not tell where its segments begin and end, so from outside some of it is an estimate:

    records   exact: from the commit, or the start of the partition if that is later, to the end
    bytes     the partition's size, in proportion to the records
    age       exact: since the batch with the first unread record was written, as its header says
    left      at least this long: retention takes whole segments, and a segment goes when its latest record is too old,
              which is later than its first. By time from the age and retention.ms; by size from retention.bytes, the
              bytes behind and how much was written in the last RATE_WINDOW_MS. The shorter one counts.
    lost      exact: records that were deleted before the group had read them

A Tidelog broker does know, and tells what it knows of the groups that it warns of; then its time left is taken.

`of_group` is what `tidelog groups describe` shows; `of_groups` answers for many at once with as few requests. `behind`
is what `tidelog groups` shows: records and losses alone, counted by the same `Unread`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.admin.groups import committed
from tidelog.client.cluster import Cluster
from tidelog.client.metadata import TopicPartition
from tidelog.client.offsets import EARLIEST, LATEST
from tidelog.control import survey
from tidelog.control.retention_warnings import Warned, read_warnings
from tidelog.control.survey import FOREVER, Retention

RATE_WINDOW_MS = 600_000
PLACES_FETCHED = 10_000  # batches of which the header is looked at, at most; beyond, ages are not told

Committed = Mapping[TopicPartition, int]


class Unread(NamedTuple):
    """What a group has not read of a partition. None: it cannot be told; of `left_ms` also: it is never taken."""

    at: TopicPartition
    committed: int
    start: int | None
    end: int | None
    bytes: int | None
    age_ms: int | None
    left_ms: int | None

    @property
    def records(self) -> int | None:
        return None if self.end is None else max(0, self.end - max(self.committed, self.start or 0))

    @property
    def lost(self) -> int:
        return max(0, min(self.start, self.end) - self.committed) if self.start and self.end is not None else 0


class PartitionExtent(NamedTuple):
    """What is known of a partition, whoever reads it."""

    start: int
    end: int
    size: int | None
    retention: Retention | None
    recent_records: int  # written in the last RATE_WINDOW_MS

    def bytes_of(self, records: int) -> int | None:
        if self.size is None:
            return None
        held = self.end - self.start
        return self.size * records // held if held else 0

    @property
    def bytes_per_ms(self) -> float:
        return (self.bytes_of(self.recent_records) or 0) / RATE_WINDOW_MS


def of_group(cluster: Cluster, group: str) -> list[Unread]:
    """By topic and partition; only what the group has committed."""
    held = {at: one.offset for at, one in committed(cluster, group).items()}
    return of_groups(cluster, {group: held})[group]


def of_groups(
    cluster: Cluster, groups: Mapping[str, Committed], *, now_ms: int | None = None
) -> dict[str, list[Unread]]:
    """`groups` are the offsets that each has committed."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    places = survey.there(cluster, (at for held in groups.values() for at in held))
    partitions = _partitions(cluster, places, groups, now)
    first = {
        (at, max(offset, partitions[at].start))
        for held in groups.values()
        for at, offset in held.items()
        if at in partitions and offset < partitions[at].end
    }
    written = _written(cluster, first)
    warned = read_warnings(cluster) if first else {}
    return {
        group: [
            _better(_unread(at, held[at], partitions.get(at), written, now), warned.get((group, at)), now)
            for at in sorted(held)
        ]
        for group, held in groups.items()
    }


def behind(cluster: Cluster, groups: Mapping[str, Committed]) -> dict[str, list[Unread]]:
    """Records and what was lost, and nothing that takes more than the two ends of each partition to tell."""
    places = survey.there(cluster, (at for held in groups.values() for at in held))
    starts, ends = survey.offsets(cluster, places, EARLIEST), survey.offsets(cluster, places, LATEST)
    return {
        group: [Unread(at, held[at], starts.get(at), ends.get(at), None, None, None) for at in sorted(held)]
        for group, held in groups.items()
    }


def _partitions(
    cluster: Cluster, places: list[TopicPartition], groups: Mapping[str, Committed], now_ms: int
) -> dict[TopicPartition, PartitionExtent]:
    starts, ends = survey.offsets(cluster, places, EARLIEST), survey.offsets(cluster, places, LATEST)
    known = [at for at in places if at in starts and at in ends]
    behind = {at for held in groups.values() for at, offset in held.items() if offset < ends.get(at, 0)}
    lagging = [at for at in known if at in behind]
    sizes = survey.sizes(cluster, lagging)
    retentions = survey.retentions(cluster, (at.topic for at in lagging))
    by_size = [at for at in lagging if at.topic in retentions and retentions[at.topic].bytes != FOREVER]
    recent = survey.offsets(cluster, by_size, now_ms - RATE_WINDOW_MS)
    return {
        at: PartitionExtent(
            starts[at], ends[at], sizes.get(at), retentions.get(at.topic), ends[at] - recent.get(at, ends[at])
        )
        for at in known
    }


def _written(cluster: Cluster, first: set[tuple[TopicPartition, int]]) -> dict[tuple[TopicPartition, int], int]:
    """A partition is asked for once in a request, so groups at different places of one take more of them."""
    rounds: list[dict[TopicPartition, int]] = []
    before: Counter[TopicPartition] = Counter()
    for at, offset in sorted(first)[:PLACES_FETCHED]:
        if before[at] == len(rounds):
            rounds.append({})
        rounds[before[at]][at] = offset
        before[at] += 1
    return {
        (at, wanted[at]): written for wanted in rounds for at, written in survey.written_ms(cluster, wanted).items()
    }


def _unread(
    at: TopicPartition,
    offset: int,
    partition: PartitionExtent | None,
    written: Mapping[tuple[TopicPartition, int], int],
    now_ms: int,
) -> Unread:
    if partition is None:
        return Unread(at, offset, None, None, None, None, None)
    first = max(offset, partition.start)
    if first >= partition.end:
        return Unread(at, offset, partition.start, partition.end, 0, 0, None)
    behind = partition.bytes_of(partition.end - first)
    written_ms = written.get((at, first))
    age_ms = None if written_ms is None else max(0, now_ms - written_ms)
    left_ms = time_left(partition, age_ms, behind)
    return Unread(at, offset, partition.start, partition.end, behind, age_ms, left_ms)


def _better(unread: Unread, warned: Warned | None, now_ms: int) -> Unread:
    """With the time left as the broker told it, if it has, and the group has not read on since."""
    left_ms = warned.left_now(now_ms) if warned is not None and warned.committed == unread.committed else None
    return unread if left_ms is None else unread._replace(left_ms=left_ms)


def time_left(partition: PartitionExtent, age_ms: int | None, behind: int | None) -> int | None:
    """Milliseconds; None when retention never takes it, or what is needed to tell is not known."""
    retention, ways = partition.retention, []
    if retention is None:
        return None
    if retention.ms != FOREVER and age_ms is not None:
        ways.append(retention.ms - age_ms)
    if retention.bytes != FOREVER and behind is not None:
        missing, rate = retention.bytes - behind, partition.bytes_per_ms
        if missing <= 0:
            ways.append(0)
        elif rate > 0:
            ways.append(int(missing / rate))
    return max(0, min(ways)) if ways else None
