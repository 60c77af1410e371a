"""DescribeProducers: the idempotent producers that a partition remembers, and where their open transactions begin.

v0    the first

The coordinator's epoch is that of the producer's last marker here, and -1 before its first, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.loading import find, when_loaded
from tidelog.broker.partition import Partition
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
    from tidelog.broker.call import Call

NOTHING_OPEN = -1


def handle(broker: Broker, request: DescribeProducersRequest, call: Call) -> None:
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]

    def answer() -> None:
        call.reply(
            DescribeProducersResponse(
                topics=[
                    TopicResponse(
                        name=topic.name,
                        partitions=[
                            _describe(index, find(broker, topic.name, index))
                            for index in dict.fromkeys(topic.partition_indexes)
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    when_loaded(broker, call, asked, answer)


def _describe(index: int, partition: Partition | int) -> PartitionResponse:
    if not isinstance(partition, Partition):
        return PartitionResponse(partition_index=index, error_code=partition)
    if not partition.log.loaded:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    open_transactions = partition.log.open_transactions()
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=open_transactions.get(producer_id, NOTHING_OPEN),
            )
            for producer_id, producer in sorted(partition.log.producers.items())
        ],
    )
