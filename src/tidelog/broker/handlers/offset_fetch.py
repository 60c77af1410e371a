"""OffsetFetch: where a group goes on reading.

v1    the oldest that is left                 v2    null topics: all of them; an error for the whole
v3    throttle time                           v5    leader epoch
v6    flexible                                v7    require stable: UNSTABLE_OFFSET_COMMIT while a transaction is open
v8    many groups                             v9    KIP-848: member id and epoch, checked
v10   topic ids instead of names; UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.commits import TOPIC_ID_SINCE, decide_fetch
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: OffsetFetchRequest, call: Call) -> None:
    if call.version >= TOPIC_ID_SINCE:
        for group in request.groups:
            for asked in group.topics or ():
                topic = broker.topics.by_id.get(asked.topic_id)
                asked.name = topic.name if topic is not None else ""
    groups = broker.groups
    decision = decide_fetch(groups, request, call.version, call.ticket)
    if request.require_stable and groups.pending:
        from tidelog.broker.groups.transactional_offsets import hide_unstable

        for _, reply in decision.replies:
            hide_unstable(groups, reply, request.group_id)
    broker.commit(GROUPS_TOPIC.name, decision)
