"""Which segments have had their time. Pure.

Whole segments only, the oldest first, and never one that is not wholly visible. By time: every record in it is older
than `retention.ms`. By size: without it the partition still has `retention.bytes`. Neither deletes what is younger than
`kept_ms`, the longest delay that a record may ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.settings import FOREVER, LogSettings


class SegmentFacts(NamedTuple):
    """`max_timestamp` None: not known yet, so the segment stays."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int | None


def expired(segments: Sequence[SegmentFacts], settings: LogSettings, now_ms: int, start_offset: int) -> int:
    """How many of the segments, which are complete but for the last, may be deleted."""
    total = sum(segment.size for segment in segments)
    count = 0
    for segment in segments:
        below_start = segment.end_offset <= start_offset
        too_old = is_old(segment, settings, now_ms)
        too_many = settings.retention_bytes != FOREVER and total - segment.size >= settings.retention_bytes
        if not (below_start or ((too_old or too_many) and not _is_kept(segment, settings, now_ms))):
            break
        total -= segment.size
        count += 1
    return min(count, len(segments) - 1)


def _is_kept(segment: SegmentFacts, settings: LogSettings, now_ms: int) -> bool:
    """Whether a record in it may not be due yet (`tidelog.delay.max.ms`)."""
    if not settings.kept_ms:
        return False
    return segment.max_timestamp is None or now_ms - segment.max_timestamp <= settings.kept_ms


def is_old(segment: SegmentFacts, settings: LogSettings, now_ms: int) -> bool:
    if settings.retention_ms == FOREVER or segment.max_timestamp is None:
        return False
    return now_ms - segment.max_timestamp > settings.retention_ms and segment.end_offset > segment.base_offset
