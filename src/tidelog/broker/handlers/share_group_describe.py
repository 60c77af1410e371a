"""ShareGroupDescribe (KIP-932): share groups, their members, and which partitions each may ask for.

v1    the first that is not a preview
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.administering import describe_groups
from tidelog.wire.messages.share_group_describe import ShareGroupDescribeRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ShareGroupDescribeRequest, call: Call) -> None:
    names = {topic_id: topic.name for topic_id, topic in broker.topics.by_id.items()}
    broker.queues.reply(call.ticket, describe_groups(broker.queues.state, request, names))
