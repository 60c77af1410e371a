"""OffsetForLeaderEpoch: where a leader epoch ended: a consumer sees whether what it read is still there (KIP-320).

    v2    the epoch that the client takes for current      v3    replica id, of no meaning here      v4    flexible

Epochs rise when a partition that acks from memory may have lost records to an unclean stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.loading import find, when_loaded
from tidelog.broker.partition import Partition
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

UNKNOWN = -1


def handle(broker: Broker, request: OffsetForLeaderEpochRequest, call: Call) -> None:
    asked = [(topic.topic, one.partition) for topic in request.topics for one in topic.partitions]

    def answer() -> None:
        call.reply(
            OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(
                        topic=topic.topic,
                        partitions=[_answer(one, find(broker, topic.topic, one.partition)) for one in topic.partitions],
                    )
                    for topic in request.topics
                ]
            )
        )

    when_loaded(broker, call, asked, answer)


def _answer(asked: OffsetForLeaderPartition, partition: Partition | int) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    if not isinstance(partition, Partition):
        answer.error_code = partition
        return answer
    current = partition.log.leader_epoch
    if asked.current_leader_epoch not in (UNKNOWN, current):
        fenced = asked.current_leader_epoch < current
        answer.error_code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
        return answer
    try:
        answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer
