"""ConsumerGroupHeartbeat (KIP-848): join, stay in and leave a group whose partitions the broker assigns.

v0    the first; the broker may choose the member id
v1    the client chooses the member id; subscription by pattern, INVALID_REGULAR_EXPRESSION
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.broker.groups.consumer_heartbeat import decide_consumer_heartbeat
from tidelog.broker.groups.state import Caller
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ConsumerGroupHeartbeatRequest, call: Call) -> None:
    if broker.is_share_group(request.group_id):
        message = f"group {request.group_id!r} is not a consumer group"
        call.reply(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message))
        return
    if broker.overload_made is not None:
        broker.overload_made.blocking.heard(request.group_id, request.member_id, call.user)
    caller = Caller(call.version, call.client_id or "", f"/{call.peer_host}", os.urandom(16).hex(), call.user)
    decision = decide_consumer_heartbeat(broker.groups, request, caller, call.ticket, broker.now())
    broker.commit(GROUPS_TOPIC.name, decision)
