"""Time, for transactions: what begins at a start, what has been open too long, and which ids nobody uses.

The shell calls `awaken` once after the fold, `followed` for every record that it applies, `time_out` every
`transaction.abort.timed.out.transaction.cleanup.interval.ms` while a transaction is open, and `expire` every
`transaction.remove.expired.transaction.cleanup.interval.ms`.
"""

from __future__ import annotations

from tidelog.broker.decision import Instant, NewRecord
from tidelog.broker.transactions.initialising import fence
from tidelog.broker.transactions.settings import TransactionSettings
from tidelog.broker.transactions.state import Transaction, TransactionsState, record, tombstone
from tidelog.broker.transactions.states import AT_REST, State


def awaken(state: TransactionsState, settings: TransactionSettings, now: Instant) -> list[Transaction]:
    """Sets time-outs going, and returns the transactions whose markers may not all be written."""
    state.live.settings = settings
    state.live.deadlines.clear()
    for transaction in state.transactions.values():
        followed(state, transaction, now)
    return [one for one in state.transactions.values() if one.is_prepared]


def followed(state: TransactionsState, transaction: Transaction, now: Instant) -> None:
    deadlines = state.live.deadlines
    if transaction.state is State.ONGOING:
        deadlines.setdefault(transaction.transactional_id, now.monotonic_ms + transaction.timeout_ms)
    else:
        deadlines.pop(transaction.transactional_id, None)


def time_out(state: TransactionsState, now: Instant) -> list[NewRecord]:
    """Aborts what has been open too long; its producer is fenced, for it may still be writing."""
    return [record(fence(state.transactions[one], now)) for one in overdue(state, now)]


def overdue(state: TransactionsState, now: Instant) -> list[str]:
    return [one for one, at in state.live.deadlines.items() if at <= now.monotonic_ms]


def expire(state: TransactionsState, now: Instant) -> list[NewRecord]:
    before_ms = now.wall_ms - state.live.settings.id_expiration_ms
    return [
        tombstone(one.transactional_id)
        for one in state.transactions.values()
        if one.state in AT_REST and one.updated_ms <= before_ms
    ]
