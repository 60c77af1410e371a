"""What a pass would do, and whether it is time for one. Pure; the rules are Kafka's.

Offsets of a partition, from the left:

    start            the log begins
    first dirty      a pass has been over all records below: no key is there twice
    stop             the first that may not be cleaned: the segment that grows, or the first one with a record of a
                     transaction that is open (last stable offset), or younger than min.compaction.lag.ms
    end

A pass is due when the dirty part is more than min.cleanable.dirty.ratio of everything up to `stop`, or when a dirty
segment begins with a record older than max.compaction.lag.ms. It notes the keys of the dirty part and then writes all
segments up to `stop` anew: small ones in a row into one, as long as they were not larger than segment.bytes together.

A segment with a hole is left alone, and as long as there is one, tombstones and marks of transactions stay: what they
cover may be in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.settings import LogSettings

MAX_SPAN = 0x7FFFFFFF  # offsets in a segment are stored in 32 bits, and the longest gap is one batch


class Piece(NamedTuple):
    """A complete segment. `latest` is its latest timestamp."""

    base_offset: int
    end_offset: int
    size: int
    latest: int
    damaged: bool = False


class Dirt(NamedTuple):
    """The first `pieces` segments may be cleaned; keys are noted from offset `start` on."""

    pieces: int
    start: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def find_dirt(pieces: Sequence[Piece], first_dirty: int, stable_up_to: int, settings: LogSettings, now_ms: int) -> Dirt:
    """`pieces` are the complete segments from the one with the log's start on."""
    count = 0
    start = first_dirty
    if pieces and not pieces[0].base_offset <= first_dirty <= pieces[-1].end_offset:
        start = pieces[0].base_offset
    for piece in pieces:
        too_young = settings.min_compaction_lag_ms > 0 and piece.latest > now_ms - settings.min_compaction_lag_ms
        if piece.end_offset > stable_up_to or (piece.end_offset > start and too_young):
            break
        count += 1
    dirty = sum(piece.size for piece in pieces[:count] if piece.end_offset > start)
    clean = sum(piece.size for piece in pieces[:count] if piece.end_offset <= start)
    return Dirt(count, start, clean, dirty)


def is_due(dirt: Dirt, oldest_ms: int | None, settings: LogSettings, now_ms: int) -> bool:
    """`oldest_ms` is the earliest time that a dirty segment begins with; None when none has one."""
    if dirt.dirty_bytes <= 0:
        return False
    if dirt.ratio > settings.min_cleanable_ratio:
        return True
    return oldest_ms is not None and oldest_ms < now_ms - settings.max_compaction_lag_ms


def in_groups(pieces: Sequence[Piece], max_bytes: int) -> list[range]:
    """Which segments become one, by their numbers; those with damage are in none."""
    groups: list[range] = []
    size = 0
    for number, piece in enumerate(pieces):
        if piece.damaged:
            continue
        last = groups[-1] if groups else None
        if (
            last is not None
            and last.stop == number
            and size + piece.size <= max_bytes
            and piece.end_offset - pieces[last.start].base_offset <= MAX_SPAN
        ):
            groups[-1] = range(last.start, number + 1)
            size += piece.size
        else:
            groups.append(range(number, number + 1))
            size = piece.size
    return groups
