"""ConsumerGroupDescribe (KIP-848): groups whose partitions the broker assigns; what members have and shall have.

v0    the first                               v1    the member's type
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.groups.describe import describe_consumer
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, call: Call) -> None:
    broker.commit(GROUPS_TOPIC.name, Decision([], [(call.ticket, describe_consumer(broker.groups, request))]))
