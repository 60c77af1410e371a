"""InitProducerId: whoever asks for a transactional id gets it, and whoever had it before is fenced.

A producer that names the id and epoch that it has (`expected`, KIP-360) gets the next epoch only if nobody else took
the id meanwhile. An open transaction is aborted first, under an epoch that nobody is ever given; the request waits for
that, and is then decided anew. Before it aborts anything, an expected epoch must be the present one: a zombie does not
end the transaction of its successor.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.broker.decision import Decision, Instant, NewRecord, Ticket
from tidelog.broker.transactions.outcome import Later, TransactionOutcome, refuse
from tidelog.broker.transactions.settings import MAX_TRANSACTIONAL_ID_LENGTH
from tidelog.broker.transactions.state import (
    LAST_EPOCH_FOR_CLIENTS,
    MAX_EPOCH,
    NEVER,
    NO_EPOCH,
    NO_PRODUCER,
    Transaction,
    TransactionsState,
    record,
)
from tidelog.broker.transactions.states import State, TransactionEvent
from tidelog.wire.error_code import ErrorCode


class Holder(NamedTuple):
    producer_id: int
    epoch: int


class Init(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: Holder | None = None
    fresh_id: int = NO_PRODUCER  # a producer id that was never used, once the shell has been asked for one


class Fence(NamedTuple):
    """An open transaction is to be aborted; when that is settled, decide `then`."""

    records: list[NewRecord]
    then: Init


def decide_init(state: TransactionsState, init: Init, ticket: Ticket, now: Instant) -> Decision | Fence | Later:
    error_code = _error(state, init)
    if error_code != ErrorCode.NONE:
        return refuse(ticket, error_code)
    found = state.transactions.get(init.transactional_id)
    if found is None:
        return _begin(state, init, ticket, now)
    if init.expected is not None and not _may_hold(found, init.expected):
        return refuse(ticket, ErrorCode.PRODUCER_FENCED)
    if found.is_prepared:
        return Later.SETTLED
    if found.state is State.ONGOING:
        return _fence(found, init, ticket, now)
    return _next_epoch(found, init, ticket, now)


def _error(state: TransactionsState, init: Init) -> int:
    settings = state.live.settings
    if not 0 < len(init.transactional_id) <= MAX_TRANSACTIONAL_ID_LENGTH:
        return ErrorCode.INVALID_REQUEST
    if not 0 < init.timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if init.transactional_id not in state.transactions and len(state.transactions) >= settings.max_ids:
        # librdkafka tries again for ever after codes that would be truer; this one every client reports at once.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _begin(state: TransactionsState, init: Init, ticket: Ticket, now: Instant) -> Decision | Later:
    if init.fresh_id == NO_PRODUCER:
        return Later.PRODUCER_ID
    begun = Transaction(init.transactional_id, State.EMPTY, init.fresh_id, 0, init.timeout_ms, now.wall_ms)
    return _initialised(begun, ticket)


def _may_hold(found: Transaction, expected: Holder) -> bool:
    """Whether the present holder may know itself by this; its epoch is looked at further on."""
    if expected.producer_id == found.producer_id:
        return True
    return expected.producer_id == found.previous_producer_id and expected.epoch >= LAST_EPOCH_FOR_CLIENTS


def _fence(found: Transaction, init: Init, ticket: Ticket, now: Instant) -> Decision | Fence:
    if init.expected is not None and init.expected.epoch != found.epoch:
        return refuse(ticket, ErrorCode.PRODUCER_FENCED)
    fenced = fence(found, now)
    expected = Holder(fenced.producer_id, fenced.epoch) if init.expected is not None else None
    return Fence([record(fenced)], init._replace(expected=expected))


def fence(found: Transaction, now: Instant) -> Transaction:
    """Aborts an open transaction under an epoch that its holder does not have."""
    epoch = min(found.epoch + 1, MAX_EPOCH)
    return found.move(TransactionEvent.ABORTED, now.wall_ms, epoch=epoch, last_epoch=NO_EPOCH)


def _next_epoch(found: Transaction, init: Init, ticket: Ticket, now: Instant) -> Decision | Later:
    expected = init.expected
    if expected is not None and expected.epoch != found.epoch:
        if expected.epoch != found.last_epoch:
            return refuse(ticket, ErrorCode.PRODUCER_FENCED)
        # The reply to the same request was lost: it is given again.
        again = _initialised_as(found, init, now, epoch=found.epoch, last_epoch=found.last_epoch)
        return _initialised(again, ticket)
    last_epoch = found.epoch if expected is not None else NO_EPOCH
    if not found.is_exhausted:
        return _initialised(_initialised_as(found, init, now, epoch=found.epoch + 1, last_epoch=last_epoch), ticket)
    if init.fresh_id == NO_PRODUCER:
        return Later.PRODUCER_ID
    renewed = _initialised_as(found, init, now, epoch=0, last_epoch=last_epoch)
    return _initialised(renewed._replace(producer_id=init.fresh_id, previous_producer_id=found.producer_id), ticket)


def _initialised_as(found: Transaction, init: Init, now: Instant, *, epoch: int, last_epoch: int) -> Transaction:
    return found.move(
        TransactionEvent.INITIALISED,
        now.wall_ms,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=init.timeout_ms,
        next_producer_id=NO_PRODUCER,
        started_ms=NEVER,
    )


def _initialised(transaction: Transaction, ticket: Ticket) -> Decision:
    outcome = TransactionOutcome(ErrorCode.NONE, transaction.producer_id, transaction.epoch)
    return Decision([record(transaction)], [(ticket, outcome)])
