"""DescribeGroups: classic groups and their members.

v1    throttle time                           v3    authorized operations
v4    group instance ids                      v5    flexible
v6    an unknown group is GROUP_ID_NOT_FOUND; before, it is said to be Dead
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.groups.describe import describe_classic
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DescribeGroupsRequest, call: Call) -> None:
    response = describe_classic(broker.groups, request, call.version)
    broker.commit(GROUPS_TOPIC.name, Decision([], [(call.ticket, response)]))
