"""InitProducerId: an id for an idempotent producer, which no other has had or will have.

    v0    the first               v2    flexible
    v3    a producer may name the id and epoch that it has; without transactions it gets a new one all the same
    v4    PRODUCER_FENCED         v5    TRANSACTION_ABORTABLE

Transactions come with the next release. Until then a transactional id is refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which librdkafka, Java's client and the Python ones report at once, as fatal.
UNSUPPORTED_VERSION or INVALID_REQUEST would be truer, but librdkafka tries again for ever after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.producer_ids import decide_allocate, give
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.connection import Call

NO_EPOCH = -1


def handle(broker: Broker, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        broker.logger.seldom(
            "transactional producer refused",
            transactional_id=request.transactional_id,
            peer=call.peer_host,
            why="transactions come with the next release; leave transactional.id out",
        )
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    state = broker.topics.producer_ids
    allocated = decide_allocate(state)
    response = InitProducerIdResponse(producer_id=allocated.producer_id, producer_epoch=0)
    try:
        broker.commit(TOPICS_TOPIC.name, Decision(allocated.records, [(call.ticket, response)]))
    except StorageError:
        return _refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    give(state, allocated)
    return None


def _refuse(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
