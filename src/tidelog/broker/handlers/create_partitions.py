"""CreatePartitions: more partitions for topics that exist.

    v0    the first                              v1    the same
    v2    flexible                               v3    may be throttled; never is

Records stay where they are: a key's records may from now on go to another partition than before, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import Addition, RequestFault, decide_add_partitions
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call


def handle(broker: Broker, request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse | None:
    decided = decide_add_partitions(broker.topics, map(_addition, request.topics), broker.config)
    results = [(one.name or "", one.fault) for one in decided.outcomes]
    try:
        records = [] if request.validate_only else decided.records
        broker.commit(TOPICS_TOPIC.name, Decision(records, [(call.ticket, _response(results))]))
    except StorageError as error:
        failed = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return _response([(name, fault or failed) for name, fault in results])
    return None


def _addition(topic: CreatePartitionsTopic) -> Addition:
    assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
    return Addition(topic.name, topic.count, assignments)


def _response(results: list[tuple[str, RequestFault | None]]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=name, error_code=fault.code if fault else 0, error_message=fault.message if fault else None
            )
            for name, fault in results
        ]
    )
