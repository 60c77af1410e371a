"""OffsetCommit: how far a group has read. Answered when it is on disk.

v2    the oldest that is left; retention time, until v4
v3    throttle time                           v6    leader epoch
v7    group instance id                       v8    flexible
v9    KIP-848: member epoch; STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND
v10   topic ids instead of names; UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.access.refusing import refused
from tidelog.broker.groups.commits import TOPIC_ID_SINCE, decide_commit
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: OffsetCommitRequest, call: Call) -> None:
    if broker.is_share_group(request.group_id):
        call.reply(refused(call.api_key, call.version, request, ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if call.version >= TOPIC_ID_SINCE:
        for asked in request.topics:
            topic = broker.topics.by_id.get(asked.topic_id)
            asked.name = topic.name if topic is not None else ""
    decision = decide_commit(broker.groups, request, call.version, call.ticket, broker.now())
    broker.commit(GROUPS_TOPIC.name, decision)
