"""AlterPartitionReassignments: partitions are on this node, and nowhere else can they go.

v0    the first      v1    whether the number of replicas may change

To be where it is already is nothing to do, and is answered with success, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name, partitions=[_reassigned(broker, topic.name, one) for one in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _reassigned(broker: Broker, name: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    code, message = _fault(broker, name, asked) or (ErrorCode.NONE, None)
    return ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=message)


def _fault(broker: Broker, name: str, asked: ReassignablePartition) -> tuple[int, str | None] | None:
    topic, index, node_id = broker.topics.by_name.get(name), asked.partition_index, broker.config.int("node.id")
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist"
    if not 0 <= index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no partition {index}"
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if asked.replicas == [node_id]:
        return None
    where = f"brokers {asked.replicas}" if asked.replicas else "no broker"
    message = f"partition {index} of {name} cannot be assigned to {where}; there is one, {node_id}"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
