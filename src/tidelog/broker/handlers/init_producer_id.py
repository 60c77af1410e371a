"""InitProducerId: a producer id and an epoch.

    v0    the first               v2    flexible
    v3    a producer may name the id and epoch that it has (KIP-360)
    v4    PRODUCER_FENCED         v5    TRANSACTION_ABORTABLE, never sent

Without a transactional id everybody gets an id that no other has had or will have. With one, its present holder is
fenced and its open transaction aborted (`transactions.initialising`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.call import Refusable
from tidelog.broker.decision import Decision
from tidelog.broker.producer_ids import decide_allocate, give
from tidelog.broker.topics import TOPICS_TOPIC
from tidelog.errors import StorageError
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.broker.transactions.outcome import TransactionOutcome

NO_EPOCH = -1
PRODUCER_FENCED_SINCE = 4


def handle(broker: Broker, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        _take(broker, request, request.transactional_id, call)
        return None
    state = broker.topics.producer_ids
    allocated = decide_allocate(state)
    response = InitProducerIdResponse(producer_id=allocated.producer_id, producer_epoch=0)
    refusal = InitProducerIdResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, producer_epoch=NO_EPOCH)
    try:
        broker.commit(TOPICS_TOPIC.name, Decision(allocated.records, [(Refusable(call, refusal), response)]))
    except StorageError:
        return refusal
    give(state, allocated)
    return None


def _take(broker: Broker, request: InitProducerIdRequest, transactional_id: str, call: Call) -> None:
    from tidelog.broker.transaction_coordinator import OutcomeTicket, fenced_code
    from tidelog.broker.transactions.initialising import Holder, Init

    def answer(outcome: TransactionOutcome) -> None:
        if outcome.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            broker.logger.seldom(
                "transactional id refused",
                transactional_id=transactional_id,
                peer=call.peer_host,
                why=f"there are tidelog.max.transactional.ids={broker.config.int('tidelog.max.transactional.ids')}",
            )
        call.reply(
            InitProducerIdResponse(
                error_code=fenced_code(outcome.error_code, call.version, PRODUCER_FENCED_SINCE),
                producer_id=outcome.producer_id,
                producer_epoch=outcome.epoch,
            )
        )

    named = request.producer_id >= 0
    expected = Holder(request.producer_id, request.producer_epoch) if named else None
    init = Init(transactional_id, request.transaction_timeout_ms, expected)
    broker.transactions.init(init, OutcomeTicket(call, answer))
