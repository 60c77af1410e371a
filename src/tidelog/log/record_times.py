"""The first record of a batch at or after a time: the one read of a log for which batches are decoded.

A batch says little of what it becomes: a few kilobytes may be gigabytes, and whoever asks has sent sixty bytes. So one
search decodes TIMES_BYTES_MAX in all its batches together, decompressed, and of batches above TIMES_BYTES_AT_ONCE the
whole process decodes one at a time. A batch above the limit is found as a whole: by its first offset, which is never
behind the record that was asked for, and its latest time. So is one whose records cannot be read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.errors import CorruptBatch, MalformedBatch, OversizedBatch, TruncatedBatch
from tidelog.record.header import BatchHeader, Buffer

if TYPE_CHECKING:
    from tidelog.record.columns import Columns

TIMES_BYTES_MAX = 8 << 20  # what one search decodes
TIMES_BYTES_AT_ONCE = 1 << 20  # a batch up to here waits for nobody; what is on the loop decodes no larger one
_ROWS_AT_ONCE = 1024

Found = tuple[int, int]  # offset and timestamp

_one_large = threading.Lock()


class TimeSearch:
    """One search in one partition, from `start_offset` on."""

    __slots__ = ("_left", "_start_offset", "_timestamp_ms")

    def __init__(self, timestamp_ms: int, start_offset: int, most: int = TIMES_BYTES_MAX) -> None:
        self._timestamp_ms = timestamp_ms
        self._start_offset = start_offset
        self._left = most

    def may_be_in(self, header: BatchHeader) -> bool:
        return header.latest >= self._timestamp_ms and header.count > 0 and header.next_offset > self._start_offset

    def find(self, header: BatchHeader, read: Callable[[], Buffer]) -> Found | None:
        """CorruptBatch or TruncatedBatch where the bytes are bad."""
        whole = max(header.base_offset, self._start_offset), header.max_timestamp
        if header.append_time and header.count == header.last_offset_delta + 1:
            return whole
        if header.size > self._left:
            return whole
        try:
            return self._look(read())
        except (CorruptBatch, TruncatedBatch):
            raise
        except MalformedBatch:  # it is too large, or its records are what the producer sent: nobody looked into them
            return whole

    def _look(self, batch: Buffer) -> Found | None:
        if len(batch) <= TIMES_BYTES_AT_ONCE:
            try:
                return self._first(batch, min(TIMES_BYTES_AT_ONCE, self._left))
            except OversizedBatch:
                if self._left <= TIMES_BYTES_AT_ONCE:
                    raise
        with _one_large:
            return self._first(batch, self._left)

    def _first(self, batch: Buffer, limit: int) -> Found | None:
        from tidelog.record.columns import decode

        columns = decode(batch, limit=limit, partial=False)
        self._left -= max(len(batch), len(columns.keys.data) + len(columns.values.data))
        return _first_at(columns, self._timestamp_ms, self._start_offset)


def _first_at(columns: Columns, timestamp_ms: int, start_offset: int) -> Found | None:
    """By the latest of many at once: there may be millions, and the interpreter is to be let go of soon."""
    offsets, times = columns.offsets, columns.timestamps
    for start in range(bisect_left(offsets, start_offset), columns.count, _ROWS_AT_ONCE):
        some = times[start : start + _ROWS_AT_ONCE]
        if max(some) >= timestamp_ms:
            row = start + next(at for at, timestamp in enumerate(some) if timestamp >= timestamp_ms)
            return offsets[row], times[row]
    return None
