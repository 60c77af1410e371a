"""DeleteRecords: everything in a partition below an offset, gone.

    v0    the first              v1    the same              v2    flexible

-1 stands for the high watermark: everything that can be read. Records of a topic whose cleanup.policy has no `delete`
are not deleted, as in Kafka. The reply has the offset that the partition now begins at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.config_changes import broker_values
from tidelog.broker.settings.describing import topic_text
from tidelog.broker.settings.topic import TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.connection import Call

HIGH_WATERMARK = -1
NOTHING_DELETED = -1


def handle(broker: Broker, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_delete(broker, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, name: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NOTHING_DELETED)
    try:
        partition = broker.partition(name, asked.partition_index)
        if partition is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return result
        log = partition.log
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        result.error_code = _refused(broker, name) or (
            0 if 0 <= offset <= log.high_watermark else ErrorCode.OFFSET_OUT_OF_RANGE
        )
        if not result.error_code:
            log.delete_before(offset)
            result.low_watermark = log.start_offset
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _refused(broker: Broker, name: str) -> int:
    topic = broker.topics.by_name[name]
    if topic.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    policy = topic_text(TOPIC["cleanup.policy"], topic.configs, broker_values(broker.topics, broker.config))
    return 0 if "delete" in (policy or "").split(",") else ErrorCode.POLICY_VIOLATION
