"""DescribeTransactions: who holds a transactional id, and what its transaction has touched.

v0    the only one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.decision import Decision
from tidelog.broker.transactions.describing import describe_transactions

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.call import Call
    from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest


def handle(broker: Broker, request: DescribeTransactionsRequest, call: Call) -> None:
    reply = describe_transactions(broker.transactions.state, request)
    broker.transactions.commit(Decision([], [(call.ticket, reply)]))
