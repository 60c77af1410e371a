"""ListOffsets: the first, the last and the offset at a time.

    v1    one offset a partition                  v2    isolation level
    v4    current leader epoch                    v6    flexible
    v7    -3: the record with the largest timestamp
    v8    -4: the earliest local offset           v9    -5: the latest tiered offset
    v11   -6: the earliest offset not yet tiered

Nothing is tiered here: -4 is the earliest offset, -5 is none, -6 is the earliest too. The latest offset of a partition
is known; the others, with their epochs, may be on disk: they are looked up in a worker thread. How much of the batches
is decoded for that is bounded (`log/record_times.py`).

With isolation level 1, read committed, the latest offset is the last stable one, where the oldest open transaction
begins, which only a loaded partition knows; what is behind it is not found by its time either.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.loading import find, off_loop, when_loaded
from tidelog.broker.partition import Partition
from tidelog.errors import HoleError, StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

EPOCHS_SINCE = 4
READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6

Search = tuple[ListOffsetsPartitionResponse, Partition, int]


def handle(broker: Broker, request: ListOffsetsRequest, call: Call) -> None:
    on_disk = [
        (topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if part.timestamp != LATEST or request.isolation_level == READ_COMMITTED
    ]
    when_loaded(broker, call, on_disk, lambda: _answer_all(broker, request, call))


def _answer_all(broker: Broker, request: ListOffsetsRequest, call: Call) -> None:
    searches: list[Search] = []
    committed = request.isolation_level == READ_COMMITTED
    times = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics = []
    for topic in request.topics:
        parts = [
            _answer(_find(broker, topic.name, part.partition_index, times), part, committed, searches)
            for part in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    response = ListOffsetsResponse(topics=topics)
    if not searches:
        _reply(call, response)
        return

    def search() -> None:
        for reply, partition, timestamp in searches:
            _search(reply, partition, timestamp, committed)

    def done(_result: object, error: BaseException | None) -> None:
        if error is not None:
            for reply, _, _ in searches:
                reply.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        _reply(call, response)

    off_loop(broker, call, search, done)


def _find(broker: Broker, name: str, index: int, times: Counter[tuple[str, int]]) -> Partition | int:
    """As in Kafka, a partition is asked about once: a search may take a while, and a request could name any number."""
    return find(broker, name, index) if times[name, index] == 1 else ErrorCode.INVALID_REQUEST


def _reply(call: Call, response: ListOffsetsResponse) -> None:
    if call.version < EPOCHS_SINCE:
        for topic in response.topics:
            for part in topic.partitions:
                part.leader_epoch = -1
    call.reply(response)


def _answer(
    partition: Partition | int, part: ListOffsetsPartition, committed: bool, searches: list[Search]
) -> ListOffsetsPartitionResponse:
    reply = ListOffsetsPartitionResponse(partition_index=part.partition_index, timestamp=-1, offset=-1, leader_epoch=-1)
    if not isinstance(partition, Partition):
        reply.error_code = partition
        return reply
    log = partition.log
    known = part.current_leader_epoch
    if known not in (-1, log.leader_epoch):
        fenced = known < log.leader_epoch
        reply.error_code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
        return reply
    if part.timestamp == LATEST and committed and not log.loaded:
        reply.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    elif part.timestamp == LATEST:
        reply.offset = log.last_stable_offset if committed else log.high_watermark
        reply.leader_epoch = log.leader_epoch
    elif part.timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING):
        reply.offset, reply.leader_epoch = log.start_offset, log.epoch_at(log.start_offset)
    elif part.timestamp != LATEST_TIERED:
        searches.append((reply, partition, part.timestamp))
    return reply


def _search(reply: ListOffsetsPartitionResponse, partition: Partition, timestamp: int, committed: bool) -> None:
    log = partition.log
    try:
        end = log.last_stable_offset if committed else log.high_watermark
        found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_at(timestamp)
    except HoleError:
        reply.error_code = ErrorCode.CORRUPT_MESSAGE
        return
    except (StorageError, OSError):
        reply.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return
    if found is not None and (not committed or found[0] < end):
        reply.offset, reply.timestamp = found
        reply.leader_epoch = log.epoch_at(reply.offset)
