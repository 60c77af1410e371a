"""OffsetDelete: forget how far a group has read, where nobody in it reads any more.

v0    the only one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.commits import decide_offset_delete
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: OffsetDeleteRequest, call: Call) -> None:
    broker.commit(GROUPS_TOPIC.name, decide_offset_delete(broker.groups, request, call.ticket))
