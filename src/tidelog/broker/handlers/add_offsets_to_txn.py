"""AddOffsetsToTxn: a group whose offsets a transaction is going to commit.

v0    the first                               v2    PRODUCER_FENCED
v3    flexible                                v4    TRANSACTION_ABORTABLE, never sent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.transaction_coordinator import OutcomeTicket, fenced_code
from tidelog.broker.transactions.adding import Writer
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

PRODUCER_FENCED_SINCE = 2


def handle(broker: Broker, request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse | None:
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)

    def answer(outcome: TransactionOutcome) -> None:
        error_code = fenced_code(outcome.error_code, call.version, PRODUCER_FENCED_SINCE)
        call.reply(AddOffsetsToTxnResponse(error_code=error_code))

    writer = Writer(request.transactional_id, request.producer_id, request.producer_epoch)
    broker.transactions.add(writer, [], [request.group_id], OutcomeTicket(call, answer))
    return None
