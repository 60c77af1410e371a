"""DeleteRecords: everything in a partition below an offset, gone.

    v0    the first              v1    the same              v2    flexible

-1 stands for the high watermark: everything that can be read. Records of a topic whose cleanup.policy has no `delete`
are not deleted, as in Kafka. The reply has the offset that the partition now begins at, and leaves when a power cut
cannot bring the records back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.broker.config_changes import broker_values
from tidelog.broker.loading import find, when_loaded
from tidelog.broker.partition import Partition
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
    from tidelog.broker.call import Call

HIGH_WATERMARK = -1
NOTHING_DELETED = -1


def handle(broker: Broker, request: DeleteRecordsRequest, call: Call) -> None:
    # Each once, the last one counts, as in Kafka: every deletion is a write.
    once = {(topic.name, one.partition_index): one for topic in request.topics for one in topic.partitions}
    asked = [(name, one) for (name, _), one in once.items()]
    by_topic: dict[str, list[DeleteRecordsPartitionResult]] = {topic.name: [] for topic in request.topics}
    response = DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=results) for name, results in by_topic.items()]
    )

    def delete() -> None:
        deletions = [_Deletion(name, one, find(broker, name, one.partition_index)) for name, one in asked]
        for deletion in deletions:
            by_topic[deletion.name].append(deletion.result)
        _delete_all(broker, deletions, lambda: call.reply(response))

    when_loaded(broker, call, [(name, one.partition_index) for name, one in asked], delete)


class _Deletion:
    """One partition of the request: what is asked for, and what becomes of it. `partition` may be an error code."""

    __slots__ = ("name", "offset", "partition", "result")

    def __init__(self, name: str, asked: DeleteRecordsPartition, partition: Partition | int) -> None:
        self.name = name
        self.offset = asked.offset
        self.partition = partition
        self.result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=NOTHING_DELETED)


def _delete_all(broker: Broker, deletions: list[_Deletion], then: Callable[[], None]) -> None:
    """Deletes, and calls `then` when all that was deleted is durably so."""
    left = len(deletions) + 1

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for deletion in deletions:
        _delete(broker, deletion, one_less)
    one_less()


def _delete(broker: Broker, deletion: _Deletion, finished: Callable[[], None]) -> None:
    partition, result = deletion.partition, deletion.result
    if not isinstance(partition, Partition):
        result.error_code = partition
        finished()
        return
    log = partition.log
    offset = log.high_watermark if deletion.offset == HIGH_WATERMARK else deletion.offset
    in_range = 0 <= offset <= log.high_watermark
    result.error_code = _refused(broker, deletion.name) or (0 if in_range else ErrorCode.OFFSET_OUT_OF_RANGE)
    if result.error_code:
        finished()
        return

    # Taken now: when this deletion is durable, a later one may have moved the start further without being so.
    low_watermark = max(offset, log.start_offset)

    def durable(error: StorageError | None) -> None:
        if error is None:
            result.low_watermark = low_watermark
        else:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        finished()

    try:
        log.delete_before(offset, durable)
    except StorageError as error:
        durable(error)


def _refused(broker: Broker, name: str) -> int:
    topic = broker.topics.by_name[name]
    if topic.own:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    policy = topic_text(TOPIC["cleanup.policy"], topic.configs, broker_values(broker.topics, broker.config))
    return 0 if "delete" in (policy or "").split(",") else ErrorCode.POLICY_VIOLATION
