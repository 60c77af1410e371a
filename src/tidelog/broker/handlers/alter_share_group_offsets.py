"""AlterShareGroupOffsets (KIP-932): the queues of a share group without members begin elsewhere.

v0    the first
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.call import Refusable
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.queues.administering import moved, refusal
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: AlterShareGroupOffsetsRequest, call: Call) -> None:
    refused = refusal(broker.queues.state, request.group_id)
    if refused is not None:
        response = AlterShareGroupOffsetsResponse(error_code=refused[0], error_message=refused[1])
        broker.queues.reply(call.ticket, response)
        return
    records: list[NewRecord] = []
    response = AlterShareGroupOffsetsResponse()
    for asked in request.topics:
        topic = broker.topics.by_name.get(asked.topic_name)
        told = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        for part in asked.partitions:
            result = AlterShareGroupOffsetsResponsePartition(partition_index=part.partition_index)
            if topic is None or not 0 <= part.partition_index < topic.partitions:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = f"{asked.topic_name}-{part.partition_index} does not exist"
            elif part.start_offset < 0:
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = f"{part.start_offset} is not an offset"
            else:
                place = topic.topic_id, part.partition_index
                records.append(moved(request.group_id, place, topic.name, part.start_offset))
            told.partitions.append(result)
        if topic is not None:
            told.topic_id = topic.topic_id
        response.responses.append(told)
    unwritten = AlterShareGroupOffsetsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        broker.queues.commit(Decision(records, [(Refusable(call, unwritten), response)]))
    except StorageError:
        call.reply(unwritten)
