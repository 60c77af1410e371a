"""Appends: offsets given, batches noted, buffers queued; and all of it taken back when the disk says no.

An append is bookkeeping in memory: a sequence is checked, the batch gets the next offset, its place is noted, its
buffer goes to the committer. For every append that is not visible yet there is a `Pending` with what it changed, so
that failed appends leave no trace: offsets are given again, producers stand where they stood. A buffer carries the
*generation* in which it was queued; when appends are taken back a new one begins, and the committer drops what is left
of the old.

While the record that makes a partition's topic is not on disk, its appends are *held*: what is in a folder always has a
topic, whatever a power cut takes.

Snapshots and blocks of the index are planned here, at an offset just given, and saved when that offset is synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import OutsideTransaction, StaleProducerEpoch
from tidelog.log.commit import Committer
from tidelog.log.files import Buffer
from tidelog.log.header_block import HEADER_BLOCK
from tidelog.log.index import BatchStart
from tidelog.log.pending import Pending, Release, let_go, take_back
from tidelog.log.producers import ProducerState, expired, find_duplicate, follow
from tidelog.log.reading import Reading
from tidelog.log.recovery import Recovered
from tidelog.log.segment import Segment
from tidelog.log.settings import LogSettings
from tidelog.log.snapshot import SNAPSHOT_BYTES, Snapshot
from tidelog.log.tail import Append, Extent, Tail
from tidelog.log.upkeep import Plan, Upkeep
from tidelog.record.codec import patch, peek, stamp_append_time
from tidelog.record.control import NO_MARKER, encode_marker, read_marker
from tidelog.record.header import TRANSACTION_BITS, BatchHeader

NO_TIME = -1
MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time: int  # -1: the producer's time counts
    duplicate: bool


class Appending:
    """The loop's thread only."""

    __slots__ = (
        "_committer",
        "_folder",
        "_generation",
        "_held",
        "_leader_epoch",
        "_pending",
        "_plans",
        "_put",
        "_reading",
        "_roll_next",
        "_snapshot_at",
        "_tail",
        "end_offset",
        "producers",
        "saved_offset",
        "settings",
        "transactions",
    )

    def __init__(
        self, folder: str, committer: Committer, reading: Reading, tail: Tail, settings: LogSettings, found: Recovered
    ) -> None:
        self._folder = folder
        self._committer = committer
        self._put: Callable[[Append], None] = committer.put
        self._held: list[Append] = []
        self._reading = reading
        self._tail = tail
        self.settings = settings
        self.producers: dict[int, ProducerState] = found.producers
        self.transactions = found.transactions
        self.end_offset = found.extent.offset if found.extent is not None else found.facts.start_offset
        self.saved_offset = found.saved.offset  # of the newest snapshot
        self._snapshot_at = found.saved.position + SNAPSHOT_BYTES
        self._leader_epoch = found.facts.epochs[-1].epoch
        self._pending: deque[Pending] = deque()
        self._plans: deque[Plan] = deque()
        self._generation = 0
        self._roll_next = False

    @property
    def is_begun(self) -> bool:
        """Whether there is a segment on the disk, and a folder."""
        return self._tail.synced is not None

    @property
    def idle(self) -> bool:
        """Nothing is on its way to the disk, also no segment."""
        segments, written = self._reading.segments, self._tail.written
        return not self._pending and written is not None and segments[-1] is written.segment

    def append(self, batch: Buffer, header: BatchHeader, now_ms: int, release: Release | None) -> Appended:
        producer_id = header.producer_id
        producer = None
        if producer_id >= 0:
            producer = self.producers.get(producer_id)
            sent = find_duplicate(producer, header)
            if sent is not None:
                first = sent.last_offset - header.last_offset_delta
                return Appended(first, sent.last_offset, sent.append_time, True)
            if producer_id in self.transactions.open and not header.attributes & TRANSACTION_BITS:
                began = self.transactions.open[producer_id]
                raise OutsideTransaction(
                    f"producer {producer_id} has a transaction open since offset {began} and sent a batch without one"
                )
        assert len(batch) == header.size, "the buffer is one batch and nothing else"
        settings = self.settings
        offset = self.end_offset
        last_offset = offset + header.last_offset_delta
        segment = self._segment_for(header.size, last_offset, now_ms)
        index = segment.index
        assert index is not None
        max_timestamp = header.max_timestamp
        append_time = NO_TIME
        marker = False
        if settings.append_time:
            stamp_append_time(batch, now_ms)
            max_timestamp = append_time = now_ms
        patch(batch, offset, self._leader_epoch)
        latest = index.max_timestamp, index.max_timestamp_offset
        self._pending.append(Pending(last_offset + 1, release, producer_id, producer, segment, segment.end, *latest))
        if producer_id >= 0:
            kind, by = read_marker(batch) if header.is_control else NO_MARKER
            self.producers[producer_id] = follow(producer, header, last_offset, now_ms, append_time, by)
            if header.attributes & TRANSACTION_BITS:
                marker = header.is_control
                self.transactions.follow(header, offset, kind)
        segment.note(offset, header.size, max_timestamp, settings.index_interval_bytes)
        self.end_offset = last_offset + 1
        end, next_offset = segment.end, last_offset + 1
        self._put(Append(self._tail, segment, batch, end, next_offset, self._generation, marker))
        if segment.end >= self._snapshot_at:
            self._plans.append(self.plan_at_end(segment))
            self._snapshot_at = segment.end + SNAPSHOT_BYTES
        return Appended(offset, last_offset, append_time, False)

    def hold(self) -> None:
        """What is appended from now on stays here until `let_go`."""
        self._put = self._held.append

    def let_go(self, *, to_disk: bool) -> None:
        held, self._held = self._held, []
        self._put = self._committer.put
        for append in held if to_disk else ():
            self._put(append)

    def append_marker(
        self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        """Ends a producer's transaction. A marker that would change nothing is not written: it is a duplicate, of one
        that may still be on its way to the disk.
        """
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise StaleProducerEpoch(
                f"marker for producer {producer_id} has epoch {epoch}, but epoch {producer.epoch} has written here"
            )
        if producer is not None and epoch == producer.epoch and producer_id not in self.transactions.open:
            return Appended(self.end_offset - 1, self.end_offset - 1, NO_TIME, True)
        batch = encode_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)
        return self.append(batch, peek(batch), now_ms, None)

    def _segment_for(self, size: int, last_offset: int, now_ms: int) -> Segment:
        segments = self._reading.segments
        if segments:
            segment = segments[-1]
            settings = self.settings
            if segment.end == HEADER_BLOCK or (
                not self._roll_next
                and segment.end + size <= settings.segment_bytes
                and now_ms - segment.created_ms < settings.segment_ms
                and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
            ):
                return segment
        return self._plan_segment(now_ms)

    def plan_snapshot(self) -> None:
        """What is known has changed without an append."""
        self._plans.append(self.plan_at_end(self._reading.segments[-1]))

    def roll(self, now_ms: int) -> None:
        """Begins a new segment without a batch, so that the old one can be deleted once the new one is there."""
        segment = self._plan_segment(now_ms)
        self._put(Append(self._tail, segment, b"", segment.end, self.end_offset, self._generation))

    def roll_soon(self, now_ms: int) -> None:
        """Now if nothing is on its way to the disk, else with the next batch: one that never rests is ended, too."""
        if self.idle:
            self.roll(now_ms)
        else:
            self._roll_next = True

    def _plan_segment(self, now_ms: int) -> Segment:
        self._roll_next = False
        reading, offset = self._reading, self.end_offset
        segment = Segment.plan(self._committer.files, self._committer.open_files, self._folder, offset, now_ms)
        if reading.segments:
            old = reading.segments[-1]
            assert old.index is not None
            covered = old.index.covered(BatchStart(old.end, offset), complete=True)
            fold = Snapshot(offset, offset, HEADER_BLOCK, dict(self.producers), self.transactions.fold())
            self._plans.append(Plan(fold, old, old.index, len(old.index), covered))
        reading.segments = (*reading.segments, segment)
        self._snapshot_at = HEADER_BLOCK + SNAPSHOT_BYTES
        return segment

    def plan_at_end(self, segment: Segment) -> Plan:
        assert segment.index is not None
        covered = segment.index.covered(BatchStart(segment.end, self.end_offset))
        state = dict(self.producers), self.transactions.fold()
        fold = Snapshot(self.end_offset, segment.base_offset, segment.end, *state)
        return Plan(fold, segment, segment.index, len(segment.index), covered)

    def visible(self, high_watermark: int) -> None:
        """Everything below is durable, or need not be: the buffers are free."""
        self.transactions.visible(high_watermark)
        let_go(self._pending, high_watermark)

    def save_plans(self, upkeep: Upkeep) -> None:
        """Those whose offset is synced, which may be less than what is visible, and whose segment is made."""
        plans, synced = self._plans, self._tail.synced
        if not plans or synced is None:
            return
        segment = synced.segment.base_offset
        while plans and plans[0].snapshot.offset <= synced.offset and plans[0].snapshot.segment <= segment:
            self.saved_offset = plans[0].snapshot.offset
            upkeep.save(plans.popleft())

    def take_back(self, extent: Extent | None, high_watermark: int) -> None:
        """Makes everything what it was before the appends above the extent; None: there is no segment yet."""
        self._generation += 1
        offset = extent.offset if extent is not None else high_watermark
        take_back(self._pending, self.producers, offset)
        self.transactions.take_back(offset)
        last = extent.segment.base_offset if extent is not None else -1
        reading = self._reading
        reading.segments = tuple(segment for segment in reading.segments if segment.base_offset <= last)
        self.end_offset = offset
        plans = self._plans
        while plans and (plans[-1].snapshot.offset > offset or plans[-1].snapshot.segment > last):
            plans.pop()

    def start_moved(self) -> None:
        """What is known of the partition outside of its folder is to follow."""
        self._committer.moved.add(self._tail)

    def forget_producers(self, before_ms: int) -> None:
        """Those who have not written since, and have nothing open."""
        for producer_id in expired(self.producers, before_ms):
            if producer_id not in self.transactions.open:
                del self.producers[producer_id]
