"""ListGroups: every group there is.

v1    throttle time                           v3    flexible
v4    states, to filter by and to see         v5    types (classic, consumer, share), likewise
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.groups.describe import list_groups
from tidelog.broker.queues.administering import list_groups as list_share_groups
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> None:
    response = list_groups(broker.groups, request)
    if broker.has_queues:
        response.groups += list_share_groups(broker.queues.state, request)
    broker.commit(GROUPS_TOPIC.name, Decision([], [(_Synced(broker, call), response)]))


class _Synced:
    """Share groups are told of when they are synced too."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self._broker = broker
        self._call = call

    def reply(self, response: object) -> None:
        if self._broker.has_queues:
            self._broker.queues.reply(self._call.ticket, response)
        else:
            self._call.reply(response)

    def drop(self) -> None:
        self._call.drop()
