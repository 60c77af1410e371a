"""DescribeShareGroupOffsets (KIP-932): where the queues of share groups begin, and how much is not done.

v0    start offsets                     v1    lag (KIP-1226)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.queues.administering import lag
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

NOT_BEGUN = -1


def handle(broker: Broker, request: DescribeShareGroupOffsetsRequest, call: Call) -> None:
    groups = [_group(broker, one) for one in request.groups]
    broker.queues.reply(call.ticket, DescribeShareGroupOffsetsResponse(groups=groups))


def _group(broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    state = broker.queues.state
    told = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
    if asked.group_id not in state.groups:
        told.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        told.error_message = f"share group {asked.group_id!r} does not exist"
        return told
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for place, queue in sorted(state.queues.get(asked.group_id, {}).items()):
            if place[0] in broker.topics.by_id:
                wanted.setdefault(queue.topic, []).append(place[1])
    else:
        wanted = {topic.topic_name: topic.partitions for topic in asked.topics}
    told.topics = [_topic(broker, asked.group_id, name, indexes) for name, indexes in wanted.items()]
    return told


def _topic(broker: Broker, group: str, name: str, indexes: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    topic = broker.topics.by_name.get(name)
    told = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
    if topic is not None:
        told.topic_id = topic.topic_id
    for index in dict.fromkeys(indexes):
        part = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=NOT_BEGUN)
        if topic is None or not 0 <= index < topic.partitions:
            part.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            part.error_message = f"{name}-{index} does not exist"
        else:
            queue = broker.queues.state.queue(group, (topic.topic_id, index))
            partition = broker.find_partition(name, index)
            if queue is not None:
                part.start_offset = queue.window.start
                if partition is not None and partition.log.known:
                    part.lag = lag(queue.window, partition.log.high_watermark)
                    part.leader_epoch = partition.log.leader_epoch
        told.partitions.append(part)
    return told
