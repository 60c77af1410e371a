"""Records for one member of a share group: looked for in its partitions, acquired, and sent as the batches they are in.

A partition's bytes are read first, from the first record that is free on; then what they cover is acquired. So what is
acquired is in the reply, also when others acquired meanwhile, in the time that a cold read takes. The reply has whole
batches, as they are on disk, and says which of their records are this member's. Offsets without records to give
(markers of transactions, aborted records for readers of committed ones, what compaction took out) are archived as they
are come upon.

No byte above the high watermark leaves, and above the last stable offset none for readers of committed records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.decision import Decision
from tidelog.broker.limits import STEP_S
from tidelog.broker.loading import find_cold
from tidelog.broker.partition import Partition
from tidelog.broker.queues.fairness import REST_MAX, alone_from, fair_share
from tidelog.broker.queues.looked import Looked
from tidelog.broker.queues.records import bound_record, set_record, whole_record
from tidelog.broker.queues.settings import EARLIEST, ShareSettings, duration_ms
from tidelog.broker.queues.state import Place, Queue
from tidelog.broker.queues.window import ARCHIVED, LOCKED, Acquired, QueueSpan, QueueWindow
from tidelog.broker.settings.topic_config import TopicConfig
from tidelog.errors import HoleError, MalformedBatch, OffsetOutOfRange, StorageError
from tidelog.log.log import Log
from tidelog.log.record_times import TIMES_BYTES_AT_ONCE
from tidelog.log.slice import Cold
from tidelog.record.codec import peek
from tidelog.record.columns import Row, decode
from tidelog.record.header import BatchHeader
from tidelog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.queue_coordinator import QueueCoordinator

READ_BYTES = 64 << 10  # what is read for one partition at least, if there is so much
BYTES_PER_RECORD = 2048  # and for each record that is asked for
READ_BYTES_MAX = 4 << 20
SPANS_MAX = 500_000  # stretches of a window, each delayed record being one; above, nobody is given what lies behind
LOOK_BYTES_MAX = 16 << 20  # what a batch may become when it is decompressed to look at keys and delays


class GivenRecords(NamedTuple):
    """What a member gets of one partition."""

    records: bytes | memoryview
    acquired: list[Acquired]
    alone: bool = False  # nothing else is to be given with it


class QueueFault(NamedTuple):
    code: int
    message: str | None = None


class Wanted(NamedTuple):
    group: str
    member: str
    place: Place
    records: int
    bytes: int
    rest: int = 0  # records of a batch that it gets beyond what it asked for, if it is alone in its group


class ReadBatches(NamedTuple):
    """Whole batches, and where each begins."""

    data: bytes | bytearray
    batches: list[tuple[int, BatchHeader]]

    @property
    def next_offset(self) -> int:
        return self.batches[-1][1].next_offset

    def covers(self, offset: int) -> bool:
        return self.batches[0][1].base_offset <= offset < self.next_offset


class ColdRead(Exception):
    """What is to be read is not in memory: it is to be read in a thread (`read_cold`), and then asked for again."""

    def __init__(self, log: Log, offset: int, size: int, limit: int | None) -> None:
        super().__init__(offset)
        self.asked = log, offset, size, limit


class QueueReader:
    """Gives records of one broker's partitions to members of share groups. Loop thread only, but for `read_cold`."""

    def __init__(self, broker: Broker, coordinator: QueueCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    def partition(self, place: Place) -> Partition | QueueFault:
        topic = self._broker.topics.by_id.get(place[0])
        if topic is None:
            return QueueFault(ErrorCode.UNKNOWN_TOPIC_ID)
        found = find_cold(self._broker, topic.name, place[1])
        return found if isinstance(found, Partition) else QueueFault(found)

    def begin(self, group: str, place: Place, log: Log) -> Queue:
        """The queue, made now if nobody of its group has asked for it before. The log is loaded."""
        queue = self._coordinator.state.queue(group, place)
        if queue is not None:
            if queue.window.end > log.end_offset:
                self._coordinator.commit(Decision([bound_record(group, *place, "end", log.end_offset)], []))
            return queue
        topic = self._broker.topics.by_id[place[0]].name
        start = self._first_offset(self._coordinator.settings(group), log)
        self._coordinator.commit(Decision([whole_record(group, *place, topic, QueueWindow(start))], []))
        queue = self._coordinator.state.queue(group, place)
        assert queue is not None, "it was just made"
        return queue

    def _first_offset(self, settings: ShareSettings, log: Log) -> int:
        if settings.reset == EARLIEST:
            return log.start_offset
        since_ms = duration_ms(settings.reset)
        if since_ms is None:
            return log.high_watermark
        # The loop looks, so it decodes little: of a larger batch the queue begins with the first record.
        found = log.offset_at(self._broker.now().wall_ms - since_ms, TIMES_BYTES_AT_ONCE)
        return log.high_watermark if found is None else found[0]

    def give(self, wanted: Wanted, found: ReadBatches | None = None) -> GivenRecords | QueueFault | None:
        """None where there is nothing to give now. `found` is what was read in a thread after a ColdRead."""
        partition = self.partition(wanted.place)
        if isinstance(partition, QueueFault):
            return partition
        log = partition.log
        try:
            queue = self.begin(wanted.group, wanted.place, log)
            return self._give(wanted, queue, partition, found)
        except HoleError as error:
            return QueueFault(ErrorCode.CORRUPT_MESSAGE, str(error))
        except OffsetOutOfRange:
            return None  # deleted a moment ago: the next look begins behind it
        except (StorageError, OSError):
            return QueueFault(ErrorCode.KAFKA_STORAGE_ERROR)

    def _give(
        self, wanted: Wanted, queue: Queue, partition: Partition, found: ReadBatches | None
    ) -> GivenRecords | None:
        settings, window, log = self._coordinator.settings(wanted.group), queue.window, partition.log
        if log.start_offset > window.start:
            self._note(wanted, "start", log.start_offset)
        looked = self._looked(wanted, window, partition.config)
        began_ms = self._broker.now().monotonic_ms
        while True:
            top = log.last_stable_offset if settings.committed else log.high_watermark
            offset, room = _first(window, looked), settings.locks - window.held[LOCKED]
            if offset is None or offset >= top or room <= 0:
                return None
            if offset >= window.end and len(window.spans) >= SPANS_MAX:
                self._broker.logger.seldom("queue is full", group=wanted.group, topic=partition.topic, spans=SPANS_MAX)
                return None
            readers = self._coordinator.readers(wanted.group, wanted.place, partition.topic)
            most = fair_share(window.free_below(top), readers, min(wanted.records, room))
            size = min(wanted.bytes, READ_BYTES_MAX, max(READ_BYTES, most * BYTES_PER_RECORD))
            if found is None or not found.covers(offset):
                found = read_hot(log, offset, size, top if settings.committed else None)
            if found is None:
                return None
            self._pass_over(wanted, window, log, found, offset, settings.committed)
            self._look(looked, found, partition.config)
            rest = wanted.rest if readers <= 1 else 0
            given = self._acquire(wanted, window, looked, found, (offset, min(found.next_offset, top), most, rest))
            if given is not None:
                return given
            if self._broker.now().monotonic_ms - began_ms > STEP_S * 1000:
                self._broker.scheduler.call_soon(self._coordinator.crowd(wanted.group, wanted.place).wake)
                return None

    def _acquire(
        self,
        wanted: Wanted,
        window: QueueWindow,
        looked: Looked | None,
        found: ReadBatches,
        asked: tuple[int, int, int, int],
    ) -> GivenRecords | None:
        first, top, most, rest = asked
        settings = self._coordinator.settings(wanted.group)
        until_ms, lonely = self._broker.now().monotonic_ms + settings.lock_ms, alone_from(settings.deliveries)
        if looked is None or not looked.by_key:
            acquired = window.acquire(wanted.member, first, top, most, until_ms, lonely)
            end, room = _rest(found, acquired, rest), min(rest, settings.locks - window.held[LOCKED])
            if end is not None and room > 0 and acquired[0].deliveries <= lonely:
                last = acquired[-1].last
                acquired = window.acquire(wanted.member, last + 1, min(end, top), room, until_ms, lonely, acquired)
        else:
            offsets = [one for one in looked.candidates(most) if first <= one < top]
            acquired = [got for one in offsets for got in window.acquire(wanted.member, one, one + 1, 1, until_ms)]
        if not acquired:
            return None
        self._coordinator.watch_clock(until_ms)
        return GivenRecords(_batches_of(found, acquired), acquired, alone=acquired[0].deliveries > lonely)

    def _looked(self, wanted: Wanted, window: QueueWindow, config: TopicConfig) -> Looked | None:
        """What is known of the records themselves; None for topics that ask for nothing of the kind."""
        if not config.delay_max_ms and not config.by_key:
            return None
        name = wanted.group, wanted.place
        looked = self._coordinator.looked.get(name)
        if looked is None or looked.window is not window or looked.by_key != config.by_key:
            looked = self._coordinator.looked[name] = Looked(window, config.by_key)
        return looked

    def _look(self, looked: Looked | None, found: ReadBatches, config: TopicConfig) -> None:
        if looked is None or found.next_offset <= looked.upto:
            return
        now, refused = self._broker.now(), looked.malformed
        for position, header in found.batches:
            if header.next_offset <= looked.upto or header.is_control:
                continue
            try:
                batch = memoryview(found.data)[position : position + header.size]
                rows: Iterable[Row] = decode(batch, crc=False, limit=LOOK_BYTES_MAX).rows()
            except MalformedBatch:
                rows = ()  # nobody can read it here: its records have no delay and no order
                looked.malformed += 1
            due = looked.look(rows, header.next_offset, config.delay_max_ms, *now)
            if due is not None:
                self._coordinator.watch_clock(due)
        looked.upto = max(looked.upto, found.next_offset)
        self._coordinator.delays_refused += looked.malformed - refused

    def _pass_over(
        self, wanted: Wanted, window: QueueWindow, log: Log, found: ReadBatches, offset: int, committed: bool
    ) -> None:
        """Offsets that have no record for anybody are archived."""
        spans = []
        first = found.batches[0][1].base_offset
        if first > offset:
            spans.append(QueueSpan(offset, first - 1, ARCHIVED, 0))
        aborted = log.stable().aborted_between(offset, found.next_offset) if committed else []
        for _, header in found.batches:
            dead = header.is_control or not header.count
            if not dead and header.is_transactional:
                dead = any(
                    one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                    for one in aborted
                )
            if dead and header.last_offset >= offset:
                spans.append(QueueSpan(max(offset, header.base_offset), header.last_offset, ARCHIVED, 0))
        free = [part for span in spans for part in _free_parts(window, span)]
        if free:
            self._coordinator.commit(Decision([set_record(wanted.group, *wanted.place, free)], []))

    def _note(self, wanted: Wanted, bound: str, offset: int) -> None:
        self._coordinator.commit(Decision([bound_record(wanted.group, *wanted.place, bound, offset)], []))


def _first(window: QueueWindow, looked: Looked | None) -> int | None:
    """Where to read: the first record that may be given, or that must be looked at before."""
    if looked is None or not looked.by_key:
        return window.next_free()
    found = looked.candidates(1)
    if found:
        return found[0]
    return None if looked.is_far_ahead else max(looked.upto, window.start)


def _free_parts(window: QueueWindow, span: QueueSpan) -> list[QueueSpan]:
    """What of a span nobody holds and nobody is done with."""
    inside = [span._replace(first=one.first, last=one.last) for one in window.between(*span[:2]) if one.is_free]
    if span.last >= window.end:
        inside.append(span._replace(first=max(span.first, window.end)))
    return inside


def _rest(found: ReadBatches, acquired: list[Acquired], most: int) -> int | None:
    """Where the batch ends that the last of these is in, if what is left of it is a little, or `most` is much."""
    if not acquired or not most:
        return None
    last = acquired[-1].last
    end = next((header.next_offset for _, header in found.batches if header.last_offset >= last), 0)
    left = end - last - 1
    return end if left > 0 and (left <= REST_MAX or most > REST_MAX) else None


def _batches_of(found: ReadBatches, acquired: list[Acquired]) -> bytes | memoryview:
    """Those batches that have acquired records, and what lies between them; a few of many do not keep all in memory."""
    first, last = acquired[0].first, acquired[-1].last
    begin, end = 0, len(found.data)
    for position, header in found.batches:
        if header.base_offset <= first:
            begin = position
        if header.base_offset > last:
            end = position
            break
    piece = memoryview(found.data)[begin:end]
    return piece if 2 * len(piece) >= len(found.data) else bytes(piece)


def read_hot(log: Log, offset: int, size: int, limit: int | None) -> ReadBatches | None:
    """From memory; ColdRead where that is not enough."""
    try:
        piece = log.read(offset, size, limit=limit, wait=False)
    except Cold:
        raise ColdRead(log, offset, size, limit) from None
    if piece is None:
        return None
    data = piece.read_hot()
    piece.release()
    if data is None:
        raise ColdRead(log, offset, size, limit)
    return _parsed(data)


def read_cold(log: Log, offset: int, size: int, limit: int | None) -> ReadBatches | None:
    """From the disk, checked. Any thread."""
    piece = log.read(offset, size, limit=limit, wait=True)
    if piece is None:
        return None
    try:
        if not piece.is_hot():
            piece.warm()
        return _parsed(piece.read())
    finally:
        piece.release()


def _parsed(data: bytes | bytearray) -> ReadBatches | None:
    batches = []
    position = 0
    while position < len(data):
        header = peek(data, position)
        batches.append((position, header))
        position += header.size
    return ReadBatches(data, batches) if batches else None
