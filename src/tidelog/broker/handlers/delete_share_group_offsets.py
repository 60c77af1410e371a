"""DeleteShareGroupOffsets (KIP-932): a share group without members forgets its queues of some topics.

v0    the first
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.call import Refusable
from tidelog.broker.decision import Decision, NewRecord
from tidelog.broker.queues.administering import forgotten, refusal
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DeleteShareGroupOffsetsRequest, call: Call) -> None:
    queues = broker.queues
    refused = refusal(queues.state, request.group_id)
    if refused is not None:
        queues.reply(call.ticket, DeleteShareGroupOffsetsResponse(error_code=refused[0], error_message=refused[1]))
        return
    records: list[NewRecord] = []
    response = DeleteShareGroupOffsetsResponse()
    for name in dict.fromkeys(one.topic_name for one in request.topics):
        topic = broker.topics.by_name.get(name)
        told = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
        if topic is None:
            told.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            told.error_message = f"topic {name} does not exist"
        else:
            told.topic_id = topic.topic_id
            meant = topic.topic_id
            records += forgotten(queues.state, request.group_id, lambda place, meant=meant: place[0] == meant)  # type: ignore[misc]
        response.responses.append(told)
    unwritten = DeleteShareGroupOffsetsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        queues.commit(Decision(records, [(Refusable(call, unwritten), response)]))
    except StorageError:
        call.reply(unwritten)
