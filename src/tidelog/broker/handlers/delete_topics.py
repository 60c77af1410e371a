"""DeleteTopics: topics and everything in them, gone.

    v1    throttle time          v3    TOPIC_DELETION_DISABLED where delete.topic.enable is false
    v4    flexible               v5    error messages
    v6    topics by name or by id

The reply leaves when the deletion is synced: a power cut brings no topic back. The partitions' folders go after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.topic_changes import Deletion, Outcome, RequestFault, decide_delete
from tidelog.broker.topics import NO_ID, TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

BY_ID_SINCE = 6
DELETION_DISABLED_SINCE = 3


def handle(broker: Broker, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse | None:
    if call.version >= BY_ID_SINCE:
        asked = [Deletion(one.name, one.topic_id) for one in request.topics]
    else:
        asked = [Deletion(name) for name in request.topic_names]
    decided = decide_delete(broker.topics, asked, broker.config)
    results = [_result(one, outcome, call.version) for one, outcome in zip(asked, decided.outcomes, strict=True)]
    try:
        response = DeleteTopicsResponse(responses=results)
        broker.commit(TOPICS_TOPIC.name, Decision(decided.records, [(call.ticket, response)]))
    except StorageError as error:
        fault = RequestFault(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        failed = [one if one.fault else one._replace(fault=fault) for one in decided.outcomes]
        return DeleteTopicsResponse(
            responses=[_result(one, outcome, call.version) for one, outcome in zip(asked, failed, strict=True)]
        )
    return None


def _result(asked: Deletion, outcome: Outcome, version: int) -> DeletableTopicResult:
    result = DeletableTopicResult(
        name=outcome.name, topic_id=outcome.topic.topic_id if outcome.topic is not None else asked.topic_id
    )
    if result.name is None and version < BY_ID_SINCE:
        result.name = ""
    if outcome.fault is not None:
        result.error_code, result.error_message = outcome.fault
        if result.error_code == ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
            result.error_code = ErrorCode.INVALID_REQUEST
        if asked.name is not None and asked.topic_id == NO_ID and version >= BY_ID_SINCE:
            # As in Kafka: who asks by name and fails learns no id.
            result.topic_id = NO_ID
    return result
