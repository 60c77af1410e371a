"""DescribeQuorum: who keeps what is decided about topics. One voter, this node, and nobody observes.

v0    the first      v1    when a replica was last heard of      v2    messages, folders' ids, and where voters listen

Kafka keeps it in the topic `__cluster_metadata`; the ends and the epoch that are told are those of `__tidelog.topics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

METADATA = "__cluster_metadata"
CONTROLLER = "CONTROLLER"
NODES_SINCE = 2
UNKNOWN = "the quorum keeps partition 0 of __cluster_metadata and nothing else"


def handle(broker: Broker, request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    response = DescribeQuorumResponse(error_message="")
    for topic in request.topics:
        partitions = [_partition(broker, topic.topic_name, one.partition_index) for one in topic.partitions]
        response.topics.append(ResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
        if call.version >= NODES_SINCE and any(not one.error_code for one in partitions):
            host, port = call.listener
            listener = Listener(name=CONTROLLER, host=host, port=port)
            response.nodes = [Node(node_id=broker.config.int("node.id"), listeners=[listener])]
    return response


def _partition(broker: Broker, topic: str, index: int) -> ResponsePartitionData:
    if (topic, index) != (METADATA, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ResponsePartitionData(partition_index=index, error_code=code, error_message=UNKNOWN)
    found = broker.partition(TOPICS_TOPIC.name, 0)
    assert found is not None
    node_id, log, now_ms = broker.config.int("node.id"), found.log, broker.now().wall_ms
    voter = ReplicaState(
        replica_id=node_id,
        log_end_offset=log.high_watermark,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=0,
        error_message="",
        leader_id=node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[voter],
    )
