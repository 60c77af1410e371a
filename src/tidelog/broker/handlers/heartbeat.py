"""Heartbeat: a member of a classic group is alive, and hears whether the group rebalances.

v1    throttle time                           v3    group instance id
v4    flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.classic_requests import decide_heartbeat
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: HeartbeatRequest, call: Call) -> None:
    if broker.overload_made is not None:
        broker.overload_made.blocking.heard(request.group_id, request.member_id, call.user)
    broker.commit(GROUPS_TOPIC.name, decide_heartbeat(broker.groups, request, call.ticket, broker.now()))
