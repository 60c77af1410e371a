"""LeaveGroup: members go, so that the others need not wait for their sessions to end.

v0    one member                              v1    throttle time
v3    many, by member id or by group instance id, each with its own error
v4    flexible                                v5    reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.classic_requests import decide_leave
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.leave_group import LeaveGroupRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: LeaveGroupRequest, call: Call) -> None:
    broker.commit(GROUPS_TOPIC.name, decide_leave(broker.groups, request, call.version, call.ticket, broker.now()))
