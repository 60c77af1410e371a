"""How long retention leaves to a group what it has not read, and what is said about it. Pure.

Whole segments go, the oldest first. So the first unread record goes with its segment, and that one goes no sooner than
each before it. By time, a segment goes when its latest record is older than `retention.ms`. By size, when as much as
`retention.bytes` lies behind it; when that will be is told by the rate at which the partition is written. The one that
comes first counts. The segment that grows goes only when it has been ended, so it has its own room yet to fill.

An *episode* is one trouble of one group with one partition, from the first warning on:

    before      what is found                                    then       a record    a log line
    none        time left is below the threshold                 warned     yes         yes
    any         more unread records deleted than was known       lost       yes         yes
    warned      time left is twice the threshold, or no end      none       tombstone   no
    lost        it has read on, and time left is no trouble      none       tombstone   no
    lost        it has read on, and is below the threshold       warned     yes         yes
    any         no commit any more: group, topic or offset gone  none       tombstone   no

A group counts when it has committed an offset, whether it has members or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.retention import SegmentFacts
from tidelog.log.settings import FOREVER, LogSettings

HOUR_MS = 3_600_000
SHARE_OF_RETENTION = 10  # by default a warning comes when this part of retention.ms is left, or an hour if that is less
CALM = 2  # times the threshold: an episode is over only when there is clearly time again
RATE_WATCH_S = 60.0

BY_TIME, BY_SIZE = "time", "size"
WARNED, LOST = "warned", "lost"


class TimeLeft(NamedTuple):
    ms: int
    by: str


class Written(NamedTuple):
    """How many bytes had been written to a partition at a time, counted from anywhere."""

    at_s: float
    total_bytes: int


class Found(NamedTuple):
    """Of one group and partition: records that were deleted unread, and the time left for the others."""

    lost: int
    left: TimeLeft | None  # None: nothing is unread, or nothing will ever be taken


class Episode(NamedTuple):
    state: str  # WARNED or LOST
    since_ms: int
    lost: int = 0


def bytes_per_s(samples: Sequence[Written]) -> float | None:
    """The rate of writing; None while it has not been watched for long enough to say."""
    if not samples or samples[-1].at_s - samples[0].at_s < RATE_WATCH_S:
        return None
    return (samples[-1].total_bytes - samples[0].total_bytes) / (samples[-1].at_s - samples[0].at_s)


def time_left(
    segments: Sequence[SegmentFacts], settings: LogSettings, now_ms: int, offset: int, rate: float | None
) -> TimeLeft | None:
    """Until retention may take the segment with `offset`; None when it never will, at this rate."""
    behind = sum(segment.size for segment in segments)
    longest = TimeLeft(0, BY_TIME)
    for number, segment in enumerate(segments, 1):
        behind -= segment.size
        room = max(0, settings.segment_bytes - segment.size) if number == len(segments) else 0
        ways = [_by_time(segment, settings, now_ms), _by_size(behind - room, settings, rate)]
        first = min((left for left in ways if left is not None), default=None)
        if first is None:
            return None
        if first.ms >= longest.ms:
            longest = first
        if offset < segment.end_offset:
            return longest
    return None


def _by_time(segment: SegmentFacts, settings: LogSettings, now_ms: int) -> TimeLeft | None:
    if settings.retention_ms == FOREVER or segment.max_timestamp is None:
        return None
    return TimeLeft(max(0, segment.max_timestamp + settings.retention_ms - now_ms), BY_TIME)


def _by_size(behind: int, settings: LogSettings, rate: float | None) -> TimeLeft | None:
    if settings.retention_bytes == FOREVER:
        return None
    missing = settings.retention_bytes - behind
    if missing <= 0:
        return TimeLeft(0, BY_SIZE)
    return TimeLeft(int(missing / rate * 1000), BY_SIZE) if rate else None


def threshold_ms(setting: int | None, settings: LogSettings) -> int:
    """Below how much time left a warning comes; `setting` is tidelog.retention.warning.ms."""
    if setting is not None:
        return setting
    if settings.retention_ms == FOREVER:
        return HOUR_MS
    return min(HOUR_MS, settings.retention_ms // SHARE_OF_RETENTION)


def judge(before: Episode | None, found: Found, threshold: int, now_ms: int) -> Episode | None:
    """The episode as it is now; the same one when there is nothing new to say."""
    known = before.lost if before is not None and before.state == LOST else 0
    if found.lost > known:
        return Episode(LOST, before.since_ms if before is not None else now_ms, found.lost)
    if before is not None and before.state == LOST and found.lost:
        return before
    if before is not None and before.state == WARNED:
        calm = found.left is None or found.left.ms >= CALM * threshold
        return None if calm else before
    if found.left is None or found.left.ms >= threshold:
        return None
    return Episode(WARNED, now_ms)
