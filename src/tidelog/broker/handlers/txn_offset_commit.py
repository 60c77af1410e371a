"""TxnOffsetCommit: how far a group has read, to count only if the transaction commits.

v0    the first                               v2    leader epoch
v3    flexible; member id, group instance id, generation: checked (KIP-447)
v4    TRANSACTION_ABORTABLE                   v5    transaction version 2: the group joins the transaction by it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.groups.transactional_offsets import decide_txn_commit, refuse_txn_commit
from tidelog.broker.topics import GROUPS_TOPIC
from tidelog.broker.transaction_coordinator import OutcomeTicket
from tidelog.broker.transactions.adding import Writer, may_commit_offsets
from tidelog.broker.transactions.outcome import TransactionOutcome
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call

ABORTABLE_SINCE = 4
JOINS_SINCE = 5


def handle(broker: Broker, request: TxnOffsetCommitRequest, call: Call) -> None:
    writer = Writer(request.transactional_id, request.producer_id, request.producer_epoch)

    def write(outcome: TransactionOutcome) -> None:
        error_code = outcome.error_code or may_commit_offsets(broker.transactions.state, writer, request.group_id)
        if error_code:
            call.reply(refuse_txn_commit(request, _known(error_code, call.version)))
        else:
            broker.commit(GROUPS_TOPIC.name, decide_txn_commit(broker.groups, request, call.ticket, broker.now()))

    if call.version >= JOINS_SINCE:
        broker.transactions.add(writer, [], [request.group_id], OutcomeTicket(call, write))
    else:
        broker.transactions.when_synced(request.transactional_id, OutcomeTicket(call, write))


def _known(error_code: int, version: int) -> int:
    """As clients of this API know it."""
    if error_code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error_code
