"""DeleteGroups: forget groups that have no members, and their offsets.

v0    the first                               v2    flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.removal import decide_delete_groups
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: DeleteGroupsRequest, call: Call) -> None:
    broker.commit(GROUPS_TOPIC.name, decide_delete_groups(broker.groups, request, call.ticket))
