"""DescribeProducers: the idempotent producers that a partition remembers.

    v0    the first

There are no transactions yet, so none is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.connection import Call

NO_COORDINATOR_EPOCH = -1


def handle(broker: Broker, request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_partition(broker, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _partition(broker: Broker, name: str, index: int) -> PartitionResponse:
    partition = broker.partition(name, index)
    if partition is None:
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no partition {index} of topic {name}",
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=NO_COORDINATOR_EPOCH,
            )
            for producer_id, producer in sorted(partition.log.producers.items())
        ],
    )
