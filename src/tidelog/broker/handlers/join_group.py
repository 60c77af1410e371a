"""JoinGroup: become a member of a classic group, or take part in its rebalance. Answered when all members have joined.

v1    rebalance time-out                      v2    throttle time
v4    a new member is told its id first (MEMBER_ID_REQUIRED) and comes again with it
v5    group instance id: static members       v6    flexible
v7    the protocol's type comes back          v8    reason
v9    skip assignment: a static leader that came back to a stable group need not assign
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.broker.groups.classic_join import decide_join
from tidelog.broker.groups.state import Caller
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: JoinGroupRequest, call: Call) -> None:
    if broker.is_share_group(request.group_id):
        call.reply(JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    caller = Caller(call.version, call.client_id or "", f"/{call.peer_host}", os.urandom(16).hex())
    broker.commit(GROUPS_TOPIC.name, decide_join(broker.groups, request, caller, call.ticket, broker.now()))
