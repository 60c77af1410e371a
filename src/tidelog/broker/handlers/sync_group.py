"""SyncGroup: the leader hands in the assignment, everybody gets theirs. Answered when the leader's has come.

v1    throttle time                           v3    group instance id
v4    flexible                                v5    the protocol's type and name, checked and given back
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.classic_requests import decide_sync
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: SyncGroupRequest, call: Call) -> None:
    if broker.overload_made is not None:
        broker.overload_made.blocking.heard(request.group_id, request.member_id, call.user)
    broker.commit(GROUPS_TOPIC.name, decide_sync(broker.groups, request, call.ticket, broker.now()))
