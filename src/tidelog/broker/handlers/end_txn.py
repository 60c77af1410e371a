"""EndTxn: commits or aborts a transaction. Answered when the outcome is on disk; markers follow.

v0    the first                               v2    PRODUCER_FENCED
v3    flexible                                v4    TRANSACTION_ABORTABLE, never sent
v5    transaction version 2: every end moves the epoch, and the reply says which producer id and epoch come next
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.transaction_coordinator import OutcomeTicket, fenced_code
from tidelog.broker.transactions.adding import Writer
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

PRODUCER_FENCED_SINCE = 2
EPOCH_MOVES_SINCE = 5


def handle(broker: Broker, request: EndTxnRequest, call: Call) -> None:
    def answer(outcome: TransactionOutcome) -> None:
        call.reply(
            EndTxnResponse(
                error_code=fenced_code(outcome.error_code, call.version, PRODUCER_FENCED_SINCE),
                producer_id=outcome.producer_id,
                producer_epoch=outcome.epoch,
            )
        )

    writer = Writer(request.transactional_id, request.producer_id, request.producer_epoch)
    bump = call.version >= EPOCH_MOVES_SINCE
    broker.transactions.end(writer, request.committed, OutcomeTicket(call, answer), bump=bump)
