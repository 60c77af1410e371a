"""OffsetForLeaderEpoch: where a leader epoch ended: a consumer sees whether what it read is still there (KIP-320).

    v2    the epoch that the client takes for current      v3    replica id, of no meaning here      v4    flexible

Epochs rise when a partition that acks from memory may have lost records to an unclean stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from tidelog.broker.connection import Call

UNKNOWN = -1


def handle(broker: Broker, request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = broker.partition(name, asked.partition)
        if partition is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        current = partition.log.leader_epoch
        if asked.current_leader_epoch not in (UNKNOWN, current):
            fenced = asked.current_leader_epoch < current
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
            return answer
        answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except StorageError:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer
