"""ElectLeaders: there is one replica of each partition, it leads, and no election is needed.

v0    the preferred leader      v1    unclean elections, an error for the whole reply      v2    flexible

As in Kafka, who asks for all partitions is told of those that had an election alone: of each topic, none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

ELECTION_TYPES = (0, 1)  # preferred, unclean
NOT_NEEDED = "there is one replica, and it leads"


def handle(broker: Broker, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    known = request.election_type in ELECTION_TYPES
    response = ElectLeadersResponse(error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:
        if known:
            listed = sorted(name for name, topic in broker.topics.by_name.items() if not topic.own)
            response.replica_election_results = [ReplicaElectionResult(topic=name) for name in listed]
        return response
    for asked in request.topic_partitions:
        results = [_result(broker, request.election_type, asked.topic, index) for index in asked.partitions]
        response.replica_election_results.append(ReplicaElectionResult(topic=asked.topic, partition_result=results))
    return response


def _result(broker: Broker, election_type: int, name: str, index: int) -> PartitionResult:
    topic = broker.topics.by_name.get(name)
    if election_type not in ELECTION_TYPES:
        code, message = ErrorCode.INVALID_REQUEST, f"election type {election_type} is neither preferred nor unclean"
    elif topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist"
    elif not 0 <= index < topic.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no partition {index}"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
