"""One partition: appends, visibility, reads. `Log.open` brings it back from its folder; everything else here is memory.

The loop's thread owns a log and calls everything but `read`, `offset_at` and `max_timestamp`, which any thread may
call. The three offsets, and who moves them:

    start_offset      retention and delete_before: the first offset that can be read
    high_watermark    the committer (through `committed`): everything below it is durable and visible
    end_offset        `append`: the next offset to be given

An append is bookkeeping: it gives the batch its offset, notes where it will be, and queues the buffer. Nothing of it is
visible until the committer says so; when the committer says that it failed, `_take_back` makes this log what it was
before, as if the appends had never been.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import OffsetOutOfRange, StorageError
from tidelog.log.commit import Committer
from tidelog.log.files import Buffer, Files, read_fully
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import Index
from tidelog.log.producers import Producer, find_duplicate, follow
from tidelog.log.recovery import Recovered, recover
from tidelog.log.segment import BadHeader, Segment
from tidelog.log.settings import LogSettings
from tidelog.log.slice import Cold, Slice
from tidelog.log.tail import Append, Extent, Tail
from tidelog.record.codec import patch, stamp_append_time
from tidelog.record.header import BatchHeader

NO_TIME = -1
MAX_RELATIVE_OFFSET = 0x7FFFFFFF

Done = Callable[[StorageError | None], None]


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time: int  # -1: the producer's time counts
    duplicate: bool


class Pending(NamedTuple):
    """An append that is not yet visible, with what to put back should it fail."""

    next_offset: int
    release: Callable[[], None] | None
    producer_id: int
    producer: Producer | None
    segment: Segment
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class Log:
    def __init__(self, folder: str, files: Files, settings: LogSettings, committer: Committer) -> None:
        self.folder = folder
        self._files = files
        self._committer = committer
        self.settings = settings
        self.start_offset = 0
        self.high_watermark = 0
        self.end_offset = 0
        self.leader_epoch = 0
        self.offline: StorageError | None = None
        self.recovery: Recovered | None = None
        self.producers: dict[int, Producer] = {}
        self.on_visible: Callable[[], None] | None = None
        self._segments: tuple[Segment, ...] = ()
        self._visible: Extent | None = None
        self._tail = Tail(self, files, folder, None)
        self._pending: deque[Pending] = deque()
        self._waiters: deque[tuple[int, Done]] = deque()
        self._generation = 0

    @classmethod
    def open(cls, folder: str, files: Files, settings: LogSettings, committer: Committer) -> Log:
        log = cls(folder, files, settings, committer)
        log._load()
        return log

    @property
    def size_bytes(self) -> int:
        return sum(segment.end for segment in self._segments)

    def _load(self) -> None:
        found = recover(self.folder, self._files, self._committer.open_files, self.settings)
        self.recovery = found
        self._segments = found.segments
        self._visible = found.extent
        self.producers = found.producers
        self.end_offset = self.high_watermark = found.extent.offset if found.extent else 0
        self.start_offset = found.segments[0].base_offset if found.segments else 0
        self._tail = Tail(self, self._files, self.folder, found.extent, found.slot_sequence)
        self._tail.durable = self.settings.durable

    # Appending --------------------------------------------------------------------------------------------------------

    def append(
        self, batch: Buffer, header: BatchHeader, now_ms: int, release: Callable[[], None] | None = None
    ) -> Appended:
        """Gives a checked batch the next offset and queues it. The buffer must stay untouched until `release` is called."""
        if self.offline is not None:
            raise self.offline
        producer_id = header.producer_id
        producer = None
        if producer_id >= 0:
            producer = self.producers.get(producer_id)
            sent = find_duplicate(producer, header)
            if sent is not None:
                first = sent.last_offset - header.last_offset_delta
                return Appended(first, sent.last_offset, sent.append_time, True)
        offset = self.end_offset
        last_offset = offset + header.last_offset_delta
        size = header.size
        settings = self.settings
        segment = self._segment_for(size, last_offset, now_ms)
        max_timestamp = header.max_timestamp
        append_time = NO_TIME
        if settings.append_time:
            stamp_append_time(batch, now_ms)
            max_timestamp = append_time = now_ms
        patch(batch, offset, self.leader_epoch)
        next_offset = last_offset + 1
        self._pending.append(
            Pending(
                next_offset,
                release,
                producer_id,
                producer,
                segment,
                segment.end,
                segment.max_timestamp,
                segment.max_timestamp_offset,
            )
        )
        if producer_id >= 0:
            self.producers[producer_id] = follow(producer, header, last_offset, now_ms, append_time)
        segment.note(offset, size, max_timestamp, settings.index_interval_bytes)
        self.end_offset = next_offset
        self._committer.put(Append(self._tail, segment, batch, segment.end, next_offset, self._generation))
        return Appended(offset, last_offset, append_time, False)

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        segments = self._segments
        if segments:
            segment = segments[-1]
            settings = self.settings
            if (
                segment.end + size <= settings.segment_bytes
                and now_ms - segment.created_ms < settings.segment_ms
                and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
            ) or segment.end == HEADER_BLOCK:
                return segment
        return self._plan_segment(now_ms)

    def _plan_segment(self, now_ms: int) -> Segment:
        segment = Segment(self._files, self._committer.open_files, self.folder, self.end_offset)
        segment.created_ms = now_ms
        segment.index = Index()
        self._segments = (*self._segments, segment)
        return segment

    def when_visible(self, offset: int, done: Done) -> None:
        """Calls `done`: with None when the high watermark has reached `offset`, with the error if it will not."""
        if self.high_watermark >= offset:
            done(None)
        elif self.offline is not None:
            done(self.offline)
        elif not self._waiters or self._waiters[-1][0] <= offset:
            self._waiters.append((offset, done))
        else:
            at = bisect_right(self._waiters, offset, key=lambda waiter: waiter[0])
            self._waiters.insert(at, (offset, done))

    # What the committer says, in the loop's thread --------------------------------------------------------------------

    def committed(self, extent: Extent) -> None:
        offset = extent.offset
        if offset <= self.high_watermark:
            return
        self._visible = extent
        self.high_watermark = offset
        pending = self._pending
        while pending and pending[0].next_offset <= offset:
            release = pending.popleft().release
            if release is not None:
                release()
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            waiters.popleft()[1](None)
        if self.on_visible is not None:
            self.on_visible()

    def write_failed(self, extent: Extent | None, error: StorageError) -> None:
        self._generation += 1
        self._take_back(extent)
        self._fail_waiters(error)

    def went_offline(self, error: StorageError) -> None:
        self.offline = error
        self._generation += 1
        self._take_back(self._visible)
        self._fail_waiters(error)

    def _take_back(self, extent: Extent | None) -> None:
        """Undoes every append above the extent, the last one first."""
        offset = extent.offset if extent is not None else self.high_watermark
        while self._pending and self._pending[-1].next_offset > offset:
            taken = self._pending.pop()
            if taken.producer is not None:
                self.producers[taken.producer_id] = taken.producer
            elif taken.producer_id >= 0:
                self.producers.pop(taken.producer_id, None)
            taken.segment.cut(taken.position, taken.max_timestamp, taken.max_timestamp_offset)
            if taken.release is not None:
                taken.release()
        last = extent.segment.base_offset if extent is not None else -1
        self._segments = tuple(segment for segment in self._segments if segment.base_offset <= last)
        self.end_offset = offset

    def _fail_waiters(self, error: StorageError) -> None:
        end = self.end_offset if self.offline is None else self.high_watermark
        failed: list[Done] = []
        while self._waiters and self._waiters[-1][0] > end:
            failed.append(self._waiters.pop()[1])
        for done in reversed(failed):
            done(error)

    # Reading: any thread ----------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True, wait: bool = True
    ) -> Slice | None:
        """Batches from the one with `offset` on, up to `max_bytes` and below `limit`; None when there is nothing yet.

        The first batch comes whole, however large, unless `min_one` is False. With `wait` False it raises `Cold`
        rather than touch the disk to find the place.
        """
        visible = self._visible
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.start_offset} to {self.end_offset}",
                self.start_offset,
                self.high_watermark,
            )
        top = self.high_watermark if limit is None else min(limit, self.high_watermark)
        if visible is None or offset >= top:
            return None
        segments = self._segments
        at = bisect_right(segments, offset, key=_base_offset) - 1
        segment = segments[at]
        stop = self._stop(segment)
        place = segment.find_recent(offset)
        if place is None:
            if not wait:
                raise Cold
            found = segment.find(offset, stop)
            if isinstance(found, BadHeader) or found is None:
                raise StorageError(f"bad batch: {found}")
            place = found
        if limit is not None and limit < top:
            stop = self._position_of(segment, top, stop)
        end = min(place.position + max_bytes, stop)
        if end < stop:
            end = segment.boundary(place.position, end)
        if end < place.position + place.size:
            if not min_one:
                return None
            end = place.position + place.size
        return Slice(self._files, segment.file(), place.position, end - place.position)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first visible record at or after a time, as (offset, timestamp)."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp_ms:
                continue
            stop = self._stop(segment)
            assert segment.index is not None
            start = segment.index.position_before_time(timestamp_ms, HEADER_BLOCK)
            for step in segment.walk(start, stop):
                if isinstance(step, BadHeader):
                    break
                position, header = step
                if header.max_timestamp >= timestamp_ms and header.next_offset > self.start_offset:
                    found = self._first_row(segment, position, header, timestamp_ms)
                    if found is not None:
                        return found
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """The first visible record with the latest timestamp, as (offset, timestamp)."""
        latest = max((segment.max_timestamp for segment in self._segments), default=NO_TIME)
        return None if latest == NO_TIME else self.offset_at(latest)

    def _first_row(
        self, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int
    ) -> tuple[int, int] | None:
        if header.append_time:
            return max(header.base_offset, self.start_offset), header.max_timestamp
        from tidelog.record.columns import decode

        data = read_fully(self._files, segment.file().fd, header.size, position)
        columns = decode(data)
        for offset, timestamp in zip(columns.offsets, columns.timestamps, strict=True):
            if timestamp >= timestamp_ms and offset >= self.start_offset:
                return offset, timestamp
        return None

    def _stop(self, segment: Segment) -> int:
        """Where the visible part of a segment ends."""
        visible = self._visible
        if visible is None or segment.base_offset > visible.segment.base_offset:
            return HEADER_BLOCK
        return visible.position if segment is visible.segment else segment.end

    def _position_of(self, segment: Segment, offset: int, stop: int) -> int:
        found = segment.find(offset, stop)
        return stop if found is None or isinstance(found, BadHeader) else found.position


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
