"""DescribeTopicPartitions: partitions of topics by the page, in the order of names.

    v0    the first

A page has at most as many partitions as the client asks for, and never more than max.request.partition.size.limit. Its
cursor names the first partition that is not on it. A topic that has gone since the last page is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.leadership import TOPIC_OPERATIONS, leadership, when_known
from tidelog.broker.topics import TOPICS_TOPIC, Topic
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

NO_PARTITIONS = range(0)


def handle(broker: Broker, request: DescribeTopicPartitionsRequest, call: Call) -> None:
    limit = broker.config.int("max.request.partition.size.limit")
    room = max(1, min(request.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    page: list[tuple[str, Topic | None, range]] = []
    for name, first in _where(broker, request):
        topic = broker.topics.by_name.get(name)
        if topic is None:
            page.append((name, None, NO_PARTITIONS))
            continue
        if room <= 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=first)
            break
        end = min(topic.partitions, first + room)
        page.append((name, topic, range(first, end)))
        room -= end - first
        if end < topic.partitions:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=end)
            break

    def answer() -> None:
        response.topics = [
            _describe(broker, topic, indexes) if topic is not None else _unknown(name) for name, topic, indexes in page
        ]
        broker.commit(TOPICS_TOPIC.name, Decision([], [(call.ticket, response)]))

    when_known(broker, call, [(topic, indexes) for _, topic, indexes in page if topic is not None], answer)


def _where(broker: Broker, request: DescribeTopicPartitionsRequest) -> list[tuple[str, int]]:
    """The topics to tell of, in order, each with its first partition to tell of."""
    names = sorted({one.name for one in request.topics}) or [topic.name for topic in broker.topics.visible()]
    cursor = request.cursor
    if cursor is None:
        return [(name, 0) for name in names]
    start = max(0, cursor.partition_index)
    return [(name, start if name == cursor.topic_name else 0) for name in names if name >= cursor.topic_name]


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _describe(broker: Broker, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(broker, topic, index) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(broker: Broker, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    led = leadership(broker, topic, index)
    node_id = broker.config.int("node.id")
    return DescribeTopicPartitionsResponsePartition(
        error_code=led.error_code,
        partition_index=index,
        leader_id=led.leader_id,
        leader_epoch=led.leader_epoch,
        replica_nodes=[node_id],
        isr_nodes=[node_id],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=led.offline_replicas,
    )
