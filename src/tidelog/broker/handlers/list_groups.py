"""ListGroups: every group there is.

v1    throttle time                           v3    flexible
v4    states, to filter by and to see         v5    types (classic, consumer), likewise
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.groups.describe import list_groups
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> None:
    broker.commit(GROUPS_TOPIC.name, Decision([], [(call.ticket, list_groups(broker.groups, request))]))
