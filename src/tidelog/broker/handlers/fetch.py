"""Fetch: slices of segment files to a consumer, waiting for new records when there are none.

    v4    isolation level                         v5    log start offset
    v7    fetch sessions (KIP-227): always answered with session 0, "no session", which every client takes
    v9    current leader epoch                    v11   rack
    v12   flexible, last fetched epoch            v13   topics by id
    v15   replica state                           v16   node endpoints (tagged, never set)
    v17, v18   for followers; nothing for consumers

A fetch in the middle of a batch gets the whole batch. No byte above the high watermark leaves: what is not synced
is not visible. Bytes go from the page cache by `sendfile`, or as a copy when they are few; a slice that is not in it is
first read in a worker thread, so that a consumer far behind does not stop the loop.

With isolation level 1, read committed, no byte leaves above the last stable offset, where the oldest open transaction
begins, and the reply lists the aborted transactions among what it carries, for the client to leave out. That takes a
partition that is loaded.

A consumer with nothing to read sends the same bytes again and again. A fetch that was answered with nothing stays with
its connection (`Connection.repeatable`): if the next frame differs in its correlation id alone, it is not read and
looked up again, and as long as the partitions have not moved, its answer is not made again either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.broker.loading import find, find_known, off_loop, when_loaded
from tidelog.broker.partition import Partition
from tidelog.broker.waiting import WaitingFetch
from tidelog.errors import HoleError, OffsetOutOfRange, StorageError
from tidelog.log.log import Log
from tidelog.log.slice import Cold, Slice
from tidelog.log.transactions import Stable
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

MAX_WAIT_MS = 60_000
TOPIC_ID_SINCE = 13
COPIED_BYTES = 32 * 1024  # of a response: what is not more takes one system call instead of five
READ_COMMITTED = 1
NOT_KNOWN = -1


def handle(broker: Broker, request: FetchRequest, call: Call) -> None:
    try:
        fetch = _Fetch(broker, request, call, find_known)
    except Cold:  # after a crash somebody must look at a partition before anybody knows its offsets
        _when_known(broker, request, call, lambda: _Fetch(broker, request, call, find).begin())
    else:
        fetch.begin()


def _when_known(broker: Broker, request: FetchRequest, call: Call, then: Callable[[], None]) -> None:
    names = [(broker.topics.name_of(topic.topic, topic.topic_id), topic) for topic in request.topics]
    wanted = [(name, part.partition) for name, topic in names if name is not None for part in topic.partitions]
    when_loaded(broker, call, wanted, then, known=True)


class _Fetch:
    """One fetch request: looked at as often as it is woken, answered once; then perhaps the same for the next call."""

    __slots__ = ("_broker", "_call", "_committed", "_empty", "_request", "_told", "_wanted")

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        call: Call,
        find: Callable[[Broker, str | None, int], Partition | int],
    ) -> None:
        self._broker = broker
        self._request = request
        self._call = call
        self._committed = request.isolation_level == READ_COMMITTED
        self._told: list[int] | None = None
        self._empty = b""  # the frame that told it
        self._wanted: list[tuple[Any, list[tuple[FetchPartition, Partition | int]]]] = []
        for topic in _each_once(request.topics):
            name = broker.topics.name_of(topic.topic, topic.topic_id)
            self._wanted.append((topic, [(part, find(broker, name, part.partition)) for part in topic.partitions]))

    def begin(self) -> None:
        request, call = self._request, self._call
        if self.ready() or request.max_wait_ms <= 0:
            self.answer()
            return
        waiting = WaitingFetch(self.ready, self.answer, call.fault)
        call.cancel = waiting.cancel
        waiting.wait(self.partitions(), self._broker.scheduler, min(request.max_wait_ms, MAX_WAIT_MS) / 1000)

    @property
    def repeatable(self) -> bool:
        """Not when a topic is gone: another may have its name now."""
        return not any(one.dropped for one in self.partitions())

    def begin_again(self, call: Call) -> None:
        """For a request of the same bytes, once the last one is answered."""
        self._call = call
        self.begin()

    def partitions(self) -> list[Partition]:
        return [one for _, parts in self._wanted for _, one in parts if isinstance(one, Partition)]

    def ready(self) -> bool:
        """Whether there are `min_bytes` to send, or something else to tell."""
        available = 0
        least = self._request.min_bytes
        for _, parts in self._wanted:
            for part, partition in parts:
                if not isinstance(partition, Partition) or partition.dropped or self._refused(part, partition):
                    return True
                log = partition.log
                if self._committed and not log.loaded:
                    return True
                end = log.last_stable_offset if self._committed else log.high_watermark
                if part.fetch_offset < end:
                    available += 1 if least <= 1 else log.bytes_between(part.fetch_offset, end)
                elif not log.start_offset <= part.fetch_offset <= log.end_offset:
                    return True
        return available >= least or not self._wanted

    def answer(self) -> None:
        """Sends what there is. What would wait for the disk is looked up and read in a thread first."""
        told = self._nothing()
        if told is None:
            self._answer_anew()
            return
        if told == self._told:
            self._call.reply_encoded(self._empty)
        else:
            self._answer_anew()
            chunks = self._call.chunks
            if not chunks:  # it is looked for in a thread, or nobody waits for it any more
                return
            self._told, self._empty = told, chunks[0]
        self._call.may_be_repeated(self)

    def _nothing(self) -> list[int] | None:
        """What an answer tells that has no records and no error; None when this one has."""
        told: list[int] = []
        for _, parts in self._wanted:
            for part, partition in parts:
                if not isinstance(partition, Partition) or partition.dropped or self._refused(part, partition):
                    return None
                log = partition.log
                if not log.loaded or part.fetch_offset != (
                    log.last_stable_offset if self._committed else log.high_watermark
                ):
                    return None
                told += (log.high_watermark, log.last_stable_offset, log.start_offset)
        return told

    def _answer_anew(self) -> None:
        try:
            response, filled = self._read_all(wait=False)
            if _are_hot(filled):
                self._call.reply(response)
                return
        except Cold:
            pass
        off_loop(self._broker, self._call, lambda: self._read_all(wait=True)[0], self._answer_cold)

    def _answer_cold(self, response: object, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._call.reply(response)

    def _read_all(self, wait: bool) -> tuple[FetchResponse, list[tuple[PartitionData, Slice]]]:
        """The response, and those of its partitions that have a slice, each with it."""
        budget = min(self._request.max_bytes, self._broker.config.int("fetch.max.bytes"))
        responses = []
        filled: list[tuple[PartitionData, Slice]] = []
        for topic, parts in self._wanted:
            replies = []
            for part, partition in parts:
                reply, piece = self._read(part, partition, budget, wait)
                replies.append(reply)
                if piece is not None:
                    filled.append((reply, piece))
                    budget -= piece.size
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=replies))
        return FetchResponse(responses=responses), filled

    def _refused(self, part: FetchPartition, partition: Partition) -> int:
        """KIP-320: a client that knows another leader epoch has seen another history of this partition."""
        known = part.current_leader_epoch
        if known == -1 or known == partition.log.leader_epoch:
            return 0
        return ErrorCode.FENCED_LEADER_EPOCH if known < partition.log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _read(
        self, part: FetchPartition, partition: Partition | int, budget: int, wait: bool
    ) -> tuple[PartitionData, Slice | None]:
        reply = PartitionData(partition_index=part.partition, high_watermark=-1, aborted_transactions=None, records=b"")
        if not isinstance(partition, Partition) or partition.dropped:
            reply.error_code = self._why_none(partition)
            return reply, None
        log = partition.log
        reply.last_stable_offset = log.last_stable_offset if log.loaded else NOT_KNOWN
        reply.high_watermark = log.high_watermark
        reply.log_start_offset = log.start_offset
        reply.error_code = self._refused(part, partition)
        if reply.error_code or budget <= 0:
            return reply, None
        piece = stable = None
        try:
            if self._committed:
                stable = self._stable(reply, log, wait)
            limit = stable.offset if stable is not None else None
            piece = log.read(part.fetch_offset, min(part.partition_max_bytes, budget), limit=limit, wait=wait)
            if wait and piece is not None and not piece.is_hot():
                piece.warm()  # here, so that damage fails this partition and not the whole fetch
        except OffsetOutOfRange:
            reply.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        except HoleError:
            reply.error_code = ErrorCode.CORRUPT_MESSAGE
        except (StorageError, OSError):
            # Also when the segment was deleted a moment ago, by retention or with its topic.
            gone = part.fetch_offset < log.start_offset
            reply.error_code = ErrorCode.OFFSET_OUT_OF_RANGE if gone else ErrorCode.KAFKA_STORAGE_ERROR
        if piece is not None and not reply.error_code:
            reply.records = piece
            if stable is not None:
                reply.aborted_transactions = _aborted(stable, part.fetch_offset, piece)
            return reply, piece
        return reply, None

    def _stable(self, reply: PartitionData, log: Log, wait: bool) -> Stable:
        """Before anything is read: what was aborted in it must still be known afterwards."""
        if not log.loaded and not wait:
            raise Cold
        stable = log.stable()
        reply.last_stable_offset, reply.high_watermark = stable.offset, log.high_watermark
        reply.aborted_transactions = []
        return stable

    def _why_none(self, partition: Partition | int) -> int:
        if partition == ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.KAFKA_STORAGE_ERROR
        by_id = self._call.version >= TOPIC_ID_SINCE
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _each_once(topics: list[FetchTopic]) -> list[FetchTopic]:
    """A partition that is asked for more than once is answered once, as in Kafka, and as it was asked for last."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics  # as most requests are
    named = [(topic.topic, topic.topic_id, part.partition) for topic in topics for part in topic.partitions]
    if len(set(named)) == len(named):
        return topics
    last = {place: number for number, place in enumerate(named)}
    number = 0
    for topic in topics:
        parts, topic.partitions = topic.partitions, []
        for part in parts:
            if last[topic.topic, topic.topic_id, part.partition] == number:
                topic.partitions.append(part)
            number += 1
    return [topic for topic in topics if topic.partitions]


def _aborted(stable: Stable, offset: int, piece: Slice) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in stable.aborted_between(offset, piece.stop_offset)
    ]


def _are_hot(filled: list[tuple[PartitionData, Slice]]) -> bool:
    """Whether all slices may be sent at once. Small ones are read instead: one call sends them with what is around."""
    room = COPIED_BYTES
    for reply, piece in filled:
        if piece.size > room:
            if not piece.is_hot():
                return False
            continue
        data = piece.read_hot()
        if data is None:
            return False
        room -= len(data)
        piece.release()
        reply.records = data
    return True
