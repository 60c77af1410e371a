"""ListTransactions: the transactional ids that there are, and how each stands.

v0    by state and by producer id             v1    by how long a transaction has been open
v2    by a pattern of the transactional id (KIP-1152)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.transactions.describing import list_transactions

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.wire.messages.list_transactions import ListTransactionsRequest


def handle(broker: Broker, request: ListTransactionsRequest, call: Call) -> None:
    reply = list_transactions(broker.transactions.state, request, broker.now())
    broker.transactions.commit(Decision([], [(call.ticket, reply)]))
